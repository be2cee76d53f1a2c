"""A diagnosis as text and as JSON: within 80 columns, safe to print, valid; and its page."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Dict, Set

import jsonschema
import pytest
from rich.cells import cell_len

from tests.unit.doctor_facts import healthy, listener, network, nginx, process
from udsprobe import host_facts
from udsprobe.doctor import examine as examine_module
from udsprobe.doctor import facts as facts_module
from udsprobe.doctor import finding as finding_module
from udsprobe.doctor.examine import Diagnosis, Machine, diagnosis
from udsprobe.host_facts import Identity, KernelFacts, NotChecked
from udsprobe.sample import MeasurementState
from udsprobe.views.documents.doctor_document import document, json_text
from udsprobe.views.text.doctor_text import render

ROOT = Path(__file__).parents[2]
SCHEMA: Dict[str, Any] = json.loads((ROOT / "docs" / "doctor.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HOSTILE = "a\x1b[2J\n\u202e[bold]\udcff" + "W" * 200 + "漢" * 90
HOST = Machine("6.18.0", "x86_64", 2, HOSTILE)


MAKERS = ("Finding", "_near")
ROW_MIN = 4
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


def ill() -> Diagnosis:
    """Everything at once, and every name hostile."""
    facts = healthy(
        networks=(network(somaxconn=128, tcp_syncookies=0), network(netns=5, own=False)),
        processes=(
            process(comm=HOSTILE, fds_open=1000, unit=HOSTILE, identity=Identity(1, 2, (3,), True)),
            process(pid=6, fds_open=None, nofile_soft=None),
        ),
        listeners=(listener(address=HOSTILE, depth_now=999, backlog=128, somaxconn=128),),
        nginx=(nginx("http { upstream a { server x; } server { proxy_pass http://a; } }"),),
        not_checked=(NotChecked(HOSTILE, HOSTILE, HOSTILE), NotChecked("a", "b")),
    )
    return diagnosis("1.0", HOST, facts)


@pytest.mark.parametrize("width", [1, 80, 97, 120, 400])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    room = max(80, min(width, 120))
    assert max(cell_len(line) for line in render(ill(), width).splitlines()) <= room


@pytest.mark.parametrize("colour", [False, True])
def test_nothing_hostile_reaches_the_terminal(colour: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(ill(), colour=colour))
    assert all(line.isprintable() for line in text.splitlines())
    assert "[bold]" in text


def test_colour_adds_nothing_but_colour() -> None:
    plain = render(ill(), colour=False)
    assert re.sub(r"\x1b\[[0-9;]*m", "", render(ill(), colour=True)) == plain


def test_each_finding_is_told_in_full() -> None:
    found = ill()
    text = " ".join(render(found, 120).split())
    for finding in found.findings:
        assert f"{finding.severity.upper()} {finding.id}" in text
        assert finding.docs in text
        assert finding.actions


def test_documents_are_valid() -> None:
    for found in (ill(), diagnosis("1.0", HOST, healthy())):
        VALIDATOR.validate(document(found))
        VALIDATOR.validate(json.loads(json_text(found)))
    assert json_text(ill()).isascii()


def test_the_schema_has_every_field() -> None:
    modules = (examine_module, facts_module, finding_module, host_facts)
    known = {name: each for module in modules for name, each in vars(module).items()}
    for name, definition in {**SCHEMA["$defs"], "Diagnosis": SCHEMA}.items():
        fields = {field.name for field in dataclasses.fields(known[name])}
        extra = {"docs"} if name == "Finding" else set()
        assert set(definition["properties"]) == set(definition["required"]) == fields | extra
        assert all("description" in each for each in definition["properties"].values())


def ids_in_the_source() -> Set[str]:
    """Ids of findings in the rules: of `Finding(…)`, or first in a row of a table of them."""
    found: Set[str] = set()
    for path in sorted((ROOT / "udsprobe" / "doctor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            first: Any = None
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS:
                first = node.args[0]
            elif isinstance(node, ast.Tuple) and len(node.elts) >= ROW_MIN:
                first = node.elts[0]
            if isinstance(first, ast.Constant) and SLUG.fullmatch(str(first.value)):
                found.add(str(first.value))
    return found


def ids_in_the_page() -> Set[str]:
    page = (ROOT / "docs" / "doctor.md").read_text("utf-8")
    return set(re.findall(r"^### ([a-z0-9-]+)$", page, re.MULTILINE))


def test_every_finding_has_a_section_and_every_section_a_finding() -> None:
    assert ids_in_the_source() == ids_in_the_page()


def test_every_section_says_why_and_how_to_mend_it() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text("utf-8")
    for section in page.split("\n### ")[1:]:
        for part in ("**Source:**", "**Fix:**"):
            assert part in section.split("\n## ")[0], section[:40]


def test_what_measurements_rest_on_is_for_those_who_ask() -> None:
    facts = healthy()
    measured = tuple(
        MeasurementState(f"number_{n}", f"tp_btf:probe_{n}", "on", None) for n in range(30)
    )
    found = diagnosis(
        "1.0", HOST, dataclasses.replace(facts, kernel=KernelFacts(measurements=measured))
    )
    brief, verbose = render(found), render(found, verbose=True)
    assert "30 of 30 measurements in full (--verbose" in brief and "probe_7" not in brief
    assert "probe_7" in verbose and "--verbose" not in verbose
    assert brief.index("findings") < brief.index("measurements")
