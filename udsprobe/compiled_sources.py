"""Source files of languages whose functions a compiler makes ready, as Go, C, C++ and Rust."""

from __future__ import annotations

GO = (".go", ".s")
"""Go's functions, and those of its assembly, are named as its packages are."""

COMPILED = (
    *GO,
    *(".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx", ".hxx", ".c++", ".h++", ".C", ".H"),
    *(".ipp", ".ixx", ".tcc", ".inl", ".cppm", ".cu", ".cuh", ".m", ".mm", ".rs", ".S", ".asm"),
    *(".y", ".yy", ".l", ".ll", ".pyx", ".d", ".zig", ".nim", ".swift", ".f", ".f90", ".F90"),
    *(".adb", ".ads", ".pas", ".v", ".vala"),
)
"""How names of files end that no interpreter reads, nor a compiler at run time."""
