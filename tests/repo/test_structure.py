"""The shape of the code: who imports whom, how long functions are, what is documented."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Dict, List, Set

from tests.repo.source_tree import ROOT, Function, Module, modules, read

PURE = ("auto", "model", "rules", "views", "compare", "doctor")
UNKNOWN_TO_PURE = ("udsprobe.kernel", "udsprobe.servers", "os", "socket", "time")
# Package → the packages it may import; single modules beside them are for everybody.
MAY_IMPORT: Dict[str, Set[str]] = {
    "auto": {"model", "rules"},
    "kernel": set(),
    "model": set(),
    "rules": {"model"},
    "compare": {"model", "rules"},
    "doctor": {"model", "rules"},
    "recording": {"model", "rules"},
    "observe": {"auto", "kernel", "model", "recording", "rules", "symbols"},
    "servers": {"doctor", "kernel", "observe"},
    "symbols": {"kernel"},
    "views": {"compare", "doctor", "model", "rules"},
    "commands": {
        "compare",
        "doctor",
        "kernel",
        "model",
        "observe",
        "recording",
        "rules",
        "servers",
        "views",
    },
    "demo": set(),
}
# Of packages that have folders: folder → the others of its package, and the package's own modules
# (""), that it may import; those modules may import every folder.
MAY_IMPORT_BESIDE: Dict[str, Dict[str, Set[str]]] = {
    "kernel": {
        "proc": set(),
        "objects": set(),
        "sockets": {"proc"},
        "abilities": {"objects", "proc"},
        "stacks": {"abilities", "objects"},
        "tables": {"abilities", "objects", "proc", "sockets"},
        "programs": {"abilities", "objects", "stacks", "tables"},
        "bcc": {"abilities", "objects", "proc", "programs", "tables"},
    },
    "model": {
        "code": {""},
        "requests": {""},
        "sockets": {"", "requests"},
        "threads": {""},
    },
    "doctor": {
        "nginx": {""},
    },
    "symbols": {
        "cpython": {""},
        "dwarf": {""},
        "go": {""},
        "java": {""},
        "php": {""},
        "ruby": {""},
        "v8": {""},
    },
    "rules": {
        "peers": {""},
        "accounts": {"", "peers"},
        "remedy": {"", "accounts", "peers"},
        "suspects": {"", "accounts", "peers", "remedy"},
        "turned_away": {"", "accounts", "peers", "remedy", "suspects"},
        "code": {"", "accounts", "peers", "remedy", "suspects"},
        "seats": {"", "accounts", "peers", "remedy", "suspects", "turned_away"},
    },
    "views": {
        "fields": set(),
        "text": {"fields"},
        "documents": {"fields"},
        "metrics": {"fields"},
        "dashboard": {"fields"},
        "html": {"fields", "text"},
    },
    "commands": {
        "output": set(),
        "options": {"output"},
        "live": {"options", "output"},
    },
}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "data", "misc", "common"}
LINES_MAX = 40
MODULES_MAX = 15
DOCUMENTED = ("auto", "kernel", "model", "doctor", "servers", "symbols")


def forbidden_imports(module: Module) -> List[str]:
    """Imports of a pure module that reach the system or the clock."""
    return [
        f"{module.name}:{line} {name}"
        for name, line in module.imported()
        if any(name == known or name.startswith(f"{known}.") for known in UNKNOWN_TO_PURE)
    ]


def packages_imported(module: Module) -> Set[str]:
    """Packages of udsprobe, other than its own, that a module imports from."""
    names = [name.split(".") for name, _ in module.imported()]
    parts = {name[1] for name in names if name[0] == "udsprobe" and len(name) > 1}
    return {part for part in parts if part in MAY_IMPORT and part != module.part}


def lines(function: Function) -> int:
    """Length of a function's code; its docstring is not counted."""
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)


def public_functions_without_docstring(module: Module) -> List[str]:
    """Public functions, and public methods of public classes, at the module's own level."""
    public = [node for node in module.tree.body if not getattr(node, "name", "").startswith("_")]
    members = [m for node in public if isinstance(node, ast.ClassDef) for m in node.body]
    return [
        f"{module.name}:{node.lineno} {node.name}"
        for node in [*public, *members]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]


def test_pure_modules_do_not_reach_the_system() -> None:
    pure = [module for module in modules() if module.part in PURE]
    assert [found for module in pure for found in forbidden_imports(module)] == []


def test_packages_import_only_what_is_below_them() -> None:
    found = {
        f"{module.name} imports {part}"
        for module in modules()
        if module.part in MAY_IMPORT
        for part in packages_imported(module) - MAY_IMPORT[module.part]
    }
    assert found == set()
    packages = {path.parent.name for path in (ROOT / "udsprobe").glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)


def test_no_folder_has_more_modules_than_one_can_look_over() -> None:
    rooms = Counter(m.path.parent for m in modules() if m.path.stem != "__init__")
    assert {str(room): count for room, count in rooms.items() if count > MODULES_MAX} == {}


def folders_imported(module: Module) -> Set[str]:
    """Folders of a module's own package, other than its own, that it imports from."""
    folders = MAY_IMPORT_BESIDE[module.part]
    names = [name.split(".") for name, _ in module.imported()]
    beside = [name[2:] for name in names if name[:2] == ["udsprobe", module.part]]
    found = {rest[0] if rest and rest[0] in folders else "" for rest in beside}
    return found - {module.folder}


def test_folders_import_only_what_is_below_them() -> None:
    found = {
        f"{module.name} imports {folder or 'what is above it'}"
        for module in modules()
        if module.part in MAY_IMPORT_BESIDE and module.folder
        for folder in folders_imported(module) - MAY_IMPORT_BESIDE[module.part][module.folder]
    }
    assert found == set()
    for part, folders in MAY_IMPORT_BESIDE.items():
        there = {path.parent.name for path in (ROOT / "udsprobe" / part).glob("*/__init__.py")}
        assert there == set(folders)


def test_functions_are_short() -> None:
    long = {
        f"{module.name}:{function.lineno} {function.name}": lines(function)
        for module in modules()
        for function in module.functions()
        if lines(function) > LINES_MAX
    }
    assert long == {}


def test_modules_say_what_they_are() -> None:
    silent = [m.name for m in modules() if m.tree.body and not ast.get_docstring(m.tree)]
    assert silent == []


def test_public_functions_are_documented() -> None:
    documented = [module for module in modules() if module.part in DOCUMENTED]
    assert [f for module in documented for f in public_functions_without_docstring(module)] == []


def test_module_names_say_what_they_hold() -> None:
    assert [module.name for module in modules() if module.path.stem in FORBIDDEN_NAMES] == []


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    source = (
        '"""Doc."""\n'
        "import os.path\n"
        "from udsprobe import kernel\n"
        "from ..kernel import btf\n"
        "from time import monotonic\n"
        "import timeit\n"
        "def public():\n" + "    x = 1\n" * 41
    )
    path = tmp_path / "udsprobe" / "model" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    module = read(path, tmp_path)
    seen = {line.split(" ")[1] for line in forbidden_imports(module)}
    assert seen == {
        "os.path",
        "udsprobe.kernel",
        "udsprobe.kernel.btf",
        "time",
        "time.monotonic",
    }
    assert [lines(function) for function in module.functions()] == [42]
    assert public_functions_without_docstring(module) == ["udsprobe.model.bad:7 public"]


def test_the_package_was_found() -> None:
    assert "udsprobe.cli" in {module.name for module in modules()}
    assert (ROOT / "pyproject.toml").is_file()
