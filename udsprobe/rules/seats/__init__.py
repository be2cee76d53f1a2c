"""Servers of which all seats are taken: connections that they allow, threads that serve."""
