"""What debug information tells of code of C, C++ and Rust: files, lines, inlined functions.

A child process reads it, by elfutils' libdw: what is in such files can crash a library.
"""
