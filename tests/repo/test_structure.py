"""The shape of the code: who imports whom, how long functions are, what is documented."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import List

from tests.repo.source_tree import ROOT, Function, Module, modules, read

PURE = ("model", "rules", "views", "compare", "doctor")
UNKNOWN_TO_PURE = ("udsprobe.kernel", "udsprobe.servers", "os", "socket", "time")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "data", "misc", "common"}
LINES_MAX = 40
DOCUMENTED = ("kernel", "model", "doctor", "servers")


def forbidden_imports(module: Module) -> List[str]:
    """Imports of a pure module that reach the system or the clock."""
    return [
        f"{module.name}:{line} {name}"
        for name, line in module.imported()
        if any(name == known or name.startswith(f"{known}.") for known in UNKNOWN_TO_PURE)
    ]


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


def too_long(module: Module) -> List[str]:
    """Functions of more than `LINES_MAX` lines."""
    return [
        f"{module.name}:{function.lineno} {function.name}, {lines(function)} lines"
        for function in module.functions()
        if lines(function) > LINES_MAX
    ]


def says_what_it_is(module: Module) -> bool:
    """Whether it has a docstring; one without code needs none."""
    return not module.tree.body or bool(ast.get_docstring(module.tree))


def listed(offenders: List[str]) -> str:
    """A clause is one test: its failure names every offender."""
    return "\n".join(offenders)


def test_pure_modules_do_not_reach_the_system() -> None:
    found = [each for one in modules() if one.part in PURE for each in forbidden_imports(one)]
    assert not found, listed(found)


def test_functions_are_short() -> None:
    found = [each for one in modules() for each in too_long(one)]
    assert not found, listed(found)


def test_modules_say_what_they_are() -> None:
    found = [one.name for one in modules() if not says_what_it_is(one)]
    assert not found, listed(found)


def test_public_functions_are_documented() -> None:
    documented = [one for one in modules() if one.part in DOCUMENTED]
    found = [each for one in documented for each in public_functions_without_docstring(one)]
    assert not found, listed(found)


def test_module_names_say_what_they_hold() -> None:
    found = [one.name for one in modules() if one.path.stem in FORBIDDEN_NAMES]
    assert not found, listed(found)


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
    seen = {line.split()[1] for line in forbidden_imports(module)}
    assert seen == {
        "os.path",
        "udsprobe.kernel",
        "udsprobe.kernel.btf",
        "time",
        "time.monotonic",
    }
    assert too_long(module) == ["udsprobe.model.bad:7 public, 42 lines"]
    assert says_what_it_is(module)
    assert public_functions_without_docstring(module) == ["udsprobe.model.bad:7 public"]


def test_the_package_was_found() -> None:
    assert "udsprobe.cli" in {module.name for module in modules()}
    assert (ROOT / "pyproject.toml").is_file()
