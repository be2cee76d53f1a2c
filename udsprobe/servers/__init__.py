"""Reads the configurations of running servers, as those servers see their files."""
