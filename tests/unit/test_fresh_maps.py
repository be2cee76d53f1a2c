"""Every map of the built objects is one that is brought back to what it was, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.repo.source_tree import ROOT
from udsprobe.errors import KernelCannotError
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.programs.fresh import EMPTIED, GLOBALS, LASTING, MADE_ANEW, ZEROED

STRATEGIES = sorted((ROOT / "udsprobe" / "_bpf").glob("[!s]*.bpf.o"))
# `enum bpf_map_type`
ARRAYS, PROGRAMS, TASKS = {2, 6, 12}, 3, 29


@pytest.fixture(params=STRATEGIES, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest) -> ProbeObject:
    path: Path = request.param
    try:
        return ProbeObject(path.read_bytes())
    except KernelCannotError as error:
        give_up(error.what)
        raise


def test_arrays_are_treated_by_name_and_all_others_by_kind(opened: ProbeObject) -> None:
    shapes = opened.shapes()
    opened.close()
    named = {shape.name for shape in shapes if shape.kind in ARRAYS}
    assert named == ZEROED | MADE_ANEW | LASTING | {GLOBALS}
    assert not ZEROED & MADE_ANEW and not LASTING & (ZEROED | MADE_ANEW)
    others = {shape.kind for shape in shapes if shape.name not in named}
    assert others <= EMPTIED | {PROGRAMS, TASKS}
    assert [shape.name for shape in shapes if shape.kind == TASKS] in ([], ["thread_slots"])
