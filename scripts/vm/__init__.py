"""The kernel matrix: Debian's kernels booted under emulation, this checkout tested in each.

`scripts/kernel-matrix` is the command. The standard library only: what runs
inside a guest is the project's own test environment.
"""
