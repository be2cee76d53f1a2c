"""The stack sampler's programs that stay loaded: each window has its own stacks, and no others."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import Dict, Iterator

import pytest

from tests.kernel.test_kept_programs import OPTIONS, chosen
from tests.patience import PATIENCE_S
from udsprobe.kernel.abilities.features import kernel_features
from udsprobe.kernel.abilities.light_plan import NEEDS, has_light
from udsprobe.kernel.objects.probe_object import HASH, ProbeObject
from udsprobe.kernel.programs.kept import KeptPrograms
from udsprobe.kernel.stacks.loaded import SERVERS, load_stacks
from udsprobe.observe.observation import Observer
from udsprobe.sample import StackReading

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

# Computes, and sleeps: both kinds of stacks.
WORKS = "import time\nwhile True:\n    sum(range(200000))\n    time.sleep(0.001)"


@pytest.fixture
def kept() -> Iterator[KeptPrograms]:
    if not has_light(kernel_features().events):
        pytest.skip(f"detail auto, which keeps programs, needs {NEEDS}")
    made = KeptPrograms()
    yield made
    made.close()


@contextmanager
def working() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", WORKS]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def window(kept: KeptPrograms, pid: int, *, is_first: bool) -> StackReading:
    """What one had in the end in which a process was met where it runs, and where it sleeps."""
    give_up_at = time.monotonic() + PATIENCE_S
    options = replace(OPTIONS, stacks="always")
    with Observer(chosen([pid]), options, kept=kept) as observer:
        assert bool(observer.loading_s) == is_first
        while not has_both(observer.last.stacks):
            observer.interval()
            assert time.monotonic() < give_up_at
        observer.finish()
        assert observer.last.stacks is not None
        return observer.last.stacks


def has_both(reading: object) -> bool:
    found = reading.stacks if isinstance(reading, StackReading) else ()
    return {each.on for each in found} == {"cpu", "off-cpu"}


def test_each_window_has_its_own_stacks(kept: KeptPrograms) -> None:
    with working() as one, working() as other:
        for number, pid in enumerate((one, other, one)):
            began_ns = time.monotonic_ns()
            reading = window(kept, pid, is_first=number == 0)
            assert {each.pid for each in reading.stacks} == {pid}
            assert 0 < reading.on_ns <= time.monotonic_ns() - began_ns


def test_the_maps_are_as_they_were_when_they_were_loaded(kept: KeptPrograms) -> None:
    with working() as pid:
        window(kept, pid, is_first=True)
    programs, taken = kept.take(), kept.take_stacks()
    assert programs is not None and taken is not None
    fresh = load_stacks(requests=programs.object.descriptor(SERVERS))
    try:
        assert taken.sees_owing and taken.sees_sleep
        assert contents(taken.object) == contents(fresh.object)
    finally:
        for each in (taken, fresh, programs):
            each.object.close()


def contents(loaded: ProbeObject) -> Dict[str, object]:
    """Of the maps that programs leave something in."""
    found: Dict[str, object] = {}
    for shape in loaded.shapes():
        if shape.kind == HASH and shape.name != SERVERS:
            found[shape.name] = list(loaded.entries(shape.name, shape.key_bytes, shape.value_bytes))
        elif shape.name == ".bss":
            found[shape.name] = list(loaded.elements(".bss", shape.value_bytes, 1))
    assert len(found) > 1
    return found


def test_stacks_are_not_kept_without_the_programs_whose_map_they_read(kept: KeptPrograms) -> None:
    with working() as pid:
        window(kept, pid, is_first=True)
        programs = kept.take()
        assert programs is not None
        programs.object.close()
        # These are lost, and the next are loaded with a map of their own.
        window(kept, pid, is_first=True)
