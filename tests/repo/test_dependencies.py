"""What the tool is made of besides itself: pinned by hash, complete, and under licences that fit.

`scripts/audit`, which CI runs, asks the registry as well: for withdrawn releases, and whether
resolving anew gives the same files.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.source_tree import ROOT

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
LOCKS = {"requirements.lock": ("export",), "requirements-tests.lock": ("test", "dev")}
HASH = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")
ROW = re.compile(r"^\| (?!package)([a-z0-9-]+) \| ([^|]+) \| ", re.MULTILINE)

each_lock = pytest.mark.parametrize("name", LOCKS)
each_python = pytest.mark.parametrize("python", PYTHONS)


class Pinned(NamedTuple):
    requirement: Requirement
    hashes: List[str]


def pinned(name: str) -> List[Pinned]:
    """The entries of a lock file."""
    text = (ROOT / name).read_text(encoding="ascii").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = [line.partition(" --hash") for line in lines]
    return [Pinned(Requirement(each), (mark + rest).split()) for each, mark, rest in words]


def versions(name: str, python: str) -> Dict[str, str]:
    """Package → version that pip would take on this Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.5"}
    environment.update(sys_platform="linux", platform_python_implementation="CPython")
    found: Dict[str, str] = {}
    for entry in pinned(name):
        if entry.requirement.marker is None or entry.requirement.marker.evaluate(environment):
            (only,) = entry.requirement.specifier
            assert only.operator == "==" and entry.requirement.name not in found
            found[entry.requirement.name] = only.version
    return found


def asked_for(extras: Tuple[str, ...]) -> Iterator[Requirement]:
    """Of pyproject.toml, with what an extra of ours takes from another."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    groups = {"": re.search(r"^dependencies = (\[.*?\n\])", text, re.MULTILINE | re.DOTALL)}
    optional = text.partition("[project.optional-dependencies]")[2].partition("\n[project.")[0]
    for match in re.finditer(r"^([a-z]+) = (\[.*?\])$", optional, re.MULTILINE | re.DOTALL):
        groups[match[1]] = match
    waiting, done = ["", *extras], set()
    while waiting:
        group = waiting.pop()
        if group in done:
            continue
        done.add(group)
        match = groups[group]
        assert match is not None
        for requirement in map(Requirement, re.findall(r'"([^"]+)"', match[match.lastindex or 0])):
            if requirement.name == "udsprobe":
                waiting += requirement.extras
            else:
                yield requirement


def licences() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("licences", str(ROOT / "scripts/licences"))
    spec = importlib.util.spec_from_loader("licences", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@each_lock
def test_every_entry_has_hashes(name: str) -> None:
    assert pinned(name)
    for entry in pinned(name):
        assert entry.hashes and all(map(HASH.match, entry.hashes)), entry.requirement


@each_lock
def test_no_place_is_named(name: str) -> None:
    text = (ROOT / name).read_text(encoding="ascii")
    assert not re.search(r"https?:|--(index|extra|find|trusted)|@ ", text)


@each_python
@each_lock
def test_it_has_what_pyproject_asks_for(name: str, python: str) -> None:
    locked = versions(name, python)
    for requirement in asked_for(LOCKS[name]):
        if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
            continue
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])
    # What makes the package itself, without fetching anything.
    assert {"pip", "setuptools"} <= locked.keys()


@each_python
def test_tests_run_with_what_users_run(python: str) -> None:
    users, ours = (versions(name, python) for name in LOCKS)
    assert users.items() <= ours.items()


def test_it_is_complete() -> None:
    """By the installed packages' own word, where the installed version is the locked one."""
    python = ".".join(map(str, sys.version_info[:2]))
    locked = versions("requirements-tests.lock", python)
    looked_at: Set[str] = set()
    for name, version in locked.items():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if found.version != version:
            continue
        looked_at.add(name)
        for requirement in map(Requirement, found.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = locked[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(needed, prereleases=True), requirement
    assert {"click", "textual"} <= looked_at


def test_licences_fit_and_are_listed() -> None:
    script = licences()
    listed = dict(ROW.findall((ROOT / "docs/licences.md").read_text(encoding="utf-8")))
    here = dict(ROW.findall(script.page()))
    assert {"click", "rich", "textual", "matplotlib"} <= here.keys()
    # Other Pythons need a package more or less.
    locked = {name for python in PYTHONS for name in versions("requirements-tests.lock", python)}
    assert listed.keys() <= locked
    for name in here.keys() & listed.keys():
        assert listed[name] == here[name], name
    for name, licence in {**listed, **here}.items():
        assert script.is_compatible(licence), (name, licence)


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "unknown", "MIT AND GPL-2.0-only", ""])
def test_others_do_not_fit(licence: str) -> None:
    assert not licences().is_compatible(licence)
