"""The package's modules as syntax trees, for tests about the repository itself."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Iterator, Tuple, Union

ROOT = Path(__file__).resolve().parents[2]

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


@dataclass(frozen=True)
class Module:
    """One Python file; `name` is dotted.

    `part` is its place below the package, `folder` its place in there; both may be empty.
    """

    path: Path
    name: str
    part: str
    folder: str
    tree: ast.Module

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones included."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node

    def imported(self) -> Iterator[Tuple[str, int]]:
        """Names of imported modules and members, absolute, with their lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield base, node.lineno
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        if self.path.name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])


@cache
def modules() -> Tuple[Module, ...]:
    """Every module of `udsprobe`, in order of path."""
    return tuple(read(path) for path in sorted((ROOT / "udsprobe").rglob("*.py")))


def read(path: Path, root: Path = ROOT) -> Module:
    """Parse one file below `root`."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    part = parts[1] if len(parts) > 1 else ""
    inside = parts[2:] if path.stem == "__init__" else parts[2:-1]
    folder = inside[0] if inside else ""
    return Module(path, ".".join(parts), part, folder, ast.parse(path.read_text(encoding="utf-8")))
