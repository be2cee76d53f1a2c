"""Descriptors of the targets in a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.samples import observation, sample, target
from udsprobe.model.difference import report
from udsprobe.model.report import Fds
from udsprobe.model.threads.target_rows import SettledRows, target_rows
from udsprobe.sample import OpenFiles, TargetReading


def fds(first: Any, last: TargetReading, seconds: float = 10.0) -> Fds:
    before = () if first is None else (first,)
    (row,) = target_rows(sample(targets=before), sample(seconds, targets=(last,)))
    return row.fds


def test_growth_says_when_the_limit_is_reached() -> None:
    found = fds(target(fds_open=42), target(fds_open=142, fds_limit=1042))
    assert (found.growth_per_s, found.full_in_s) == (10.0, 90.0)


def test_what_does_not_grow_is_never_full() -> None:
    assert fds(target(fds_open=42), target(fds_open=42)).growth_per_s == 0.0
    assert fds(target(fds_open=42), target(fds_open=42)).full_in_s is None
    shrunk = fds(target(fds_open=42), target(fds_open=22))
    assert (shrunk.growth_per_s, shrunk.full_in_s) == (-2.0, None)


def test_a_limit_lowered_below_is_reached_already() -> None:
    assert fds(target(fds_open=42), target(fds_open=52, fds_limit=20)).full_in_s == 0.0


def test_unknown_growth() -> None:
    for first, last in (
        (None, target()),
        (target(fds_open=None), target()),
        (target(), target(fds_open=None)),
        (target(), target(state="exited")),
        (target(start_ticks=1), target(start_ticks=2)),
    ):
        found = fds(first, last)
        assert (found.growth_per_s, found.full_in_s) == (None, None)
    assert fds(target(), target(), 0.0).growth_per_s is None
    assert fds(target(fds_open=1), target(fds_limit=None)).full_in_s is None


def test_refusals_of_the_window() -> None:
    found = fds(target(fds_refused={"EMFILE": 2}), target(fds_refused={"EMFILE": 7, "ENFILE": 1}))
    assert (found.exhausted, found.exhausted_by_errno) == (6, {"EMFILE": 5, "ENFILE": 1})
    newborn = fds(None, target(fds_refused={"EMFILE": 7}, state="exited"))
    assert (newborn.exhausted, newborn.exhausted_by_errno) == (7, {"EMFILE": 7})
    unknown = fds(None, target(fds_refused=None))
    assert (unknown.exhausted, unknown.exhausted_by_errno) == (None, None)
    assert fds(target(), target()).exhausted == 0


def test_files_of_the_host() -> None:
    last = sample(1.0, open_files=OpenFiles(open=9, max=10))
    host = report(observation(), sample(), last).host
    assert (host.files_open, host.file_max) == (9, 10)
    hidden = report(observation(), sample(), sample(1.0, open_files=None)).host
    assert (hidden.files_open, hidden.file_max) == (None, None)


POD = "9a1c7e04-0d6b-4a5e-8f5e-0123456789ab"
ID = "0123456789abcdef" * 4
PLACES = [
    ("/system.slice/nginx.service", ("nginx.service", None, None, None)),
    (f"/system.slice/docker-{ID}.scope", (None, ID, "docker", None)),
    (
        f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
        (None, ID, "containerd", POD),
    ),
    ("/", (None, None, None, None)),
    (None, (None, None, None, None)),
]


@pytest.mark.parametrize(("cgroup", "place"), PLACES)
def test_unit_container_and_pod_are_read_off_the_cgroup(cgroup: Any, place: Any) -> None:
    (row,) = target_rows(sample(), sample(1.0, targets=(target(cgroup=cgroup),)))
    assert (row.unit, row.container, row.runtime, row.pod) == place


def test_rows_kept_from_report_to_report_are_those_made_anew() -> None:
    settled = SettledRows()
    kept, other = target(pid=1), target(pid=2)
    first = sample(targets=(kept, other))
    samples = [
        sample(1.0, targets=(kept, other)),
        sample(2.0, targets=(kept, target(pid=2, fds_open=50))),
        sample(3.0, targets=(target(pid=1, state="exited"), target(pid=2, fds_open=50))),
        sample(4.0, targets=(kept,)),
    ]
    for before, now in zip([first, *samples], samples):
        # Equal, but no object of it is one of the other's.
        apart = replace(before, targets=tuple(replace(each) for each in before.targets))
        assert target_rows(before, now, settled) == target_rows(apart, now)
