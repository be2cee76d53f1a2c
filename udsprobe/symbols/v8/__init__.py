"""V8 in a process: how it keeps the functions of its frames, and their names."""
