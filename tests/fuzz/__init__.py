"""Fuzzing: what reads bytes of strangers, and must refuse them in our own words."""
