"""Ruby in a process: where it keeps what it runs, and the names of its functions."""
