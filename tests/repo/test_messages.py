"""`docs/messages.md` has a row for every slug a user can meet, and for no other."""

from __future__ import annotations

import ast
import importlib
import re
from typing import Dict, Iterator, List, Set, Tuple

from tests.repo.source_tree import ROOT, Module, modules

PRINTED = re.compile(r"error\[([a-z][a-z-]*)\]")
ROW = re.compile(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$")


def error_classes() -> Set[str]:
    """`UdsprobeError` and all that derive from it."""
    bases: Dict[str, List[str]] = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {"UdsprobeError"}
    while True:
        derived = {name for name, parents in bases.items() if known & set(parents)} - known
        if not derived:
            return known
        known |= derived


def raised(module: Module, classes: Set[str]) -> Iterator[Tuple[str, int, str]]:
    """Error constructors: the slug, or "" when it is no literal; the line; the class."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in classes:
            slug = node.args[0]
            literal = isinstance(slug, ast.Constant) and isinstance(slug.value, str)
            yield (slug.value if literal else ""), node.lineno, name  # type: ignore[attr-defined]


def slugs() -> Dict[str, str]:
    """Slug → a place that uses it."""
    classes = error_classes()
    found = {
        slug: f"{module.path.name}:{line}"
        for module in modules()
        for slug, line, _ in raised(module, classes)
    }
    texts = [*(module.path for module in modules()), *(ROOT / "scripts").iterdir()]
    for path in filter(lambda path: path.is_file(), texts):
        for slug in PRINTED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(slug, path.name)
    return found


def rows() -> Dict[str, Tuple[str, ...]]:
    """Slug → the other cells of its row."""
    page = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    matches = [match for match in map(ROW.match, page.splitlines()) if match]
    assert len({match[1] for match in matches}) == len(matches), "a slug has two rows"
    return {match[1]: tuple(cell.strip() for cell in match.groups()[1:]) for match in matches}


def test_slugs_are_literals() -> None:
    assert slugs().get("") is None


def test_every_slug_has_a_row() -> None:
    assert {slug: place for slug, place in slugs().items() if slug not in rows()} == {}


def test_every_row_has_a_slug() -> None:
    assert set(rows()) - set(slugs()) == set()


def test_rows_name_the_exit_code() -> None:
    """That of every class which is raised with the slug."""
    wrong, classes, listed = [], error_classes(), rows()
    for module in modules():
        for slug, line, raised_by in raised(module, classes):
            code = getattr(importlib.import_module(module.name), raised_by).exit_code
            if str(code) not in listed[slug][0].split(", "):
                wrong.append(f"{module.name}:{line} {slug} exits with {code}")
    assert wrong == []


def test_rows_say_what_why_and_what_to_do() -> None:
    assert rows()
    for slug, cells in rows().items():
        assert all(cells), slug
