"""The generator of systems: reproducible, every part reachable, cures that end what they name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Set

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.scenarios import drawn, kept
from tests.scenarios.case import CAUSES
from tests.scenarios.harm import Harm
from tests.scenarios.judge import Judgement
from tests.scenarios.neighbours import read, strangers_share
from tests.scenarios.systems import (
    CLIENT,
    ILLNESSES,
    KINDS,
    OF_CLIENTS,
    PROXY,
    SERVER,
    STYLES,
    SYSTEM,
    UPSTREAM,
    Cure,
    System,
    causes_seen,
    cured,
    cures,
    draw,
    well,
)

MANY = [draw(7, index, noise=True) for index in range(2000)]
seeds = st.integers(0, 10**9)


@settings(deadline=None)
@given(seeds, st.integers(0, 10**6), st.booleans())
def test_a_number_is_always_the_same_system(seed: int, index: int, noise: bool) -> None:
    assert draw(seed, index, noise) == draw(seed, index, noise)


@settings(deadline=None)
@given(seeds)
def test_noise_changes_nothing_else(seed: int) -> None:
    quiet, noisy = draw(seed, 0), draw(seed, 0, noise=True)
    assert noisy.with_({(SYSTEM, "noise"): 0}).knobs == quiet.with_({(SYSTEM, "noise"): 0}).knobs
    assert (noisy.attach, noisy.style) == (quiet.attach, quiet.style)


@settings(deadline=None)
@given(seeds, st.integers(0, 1000))
def test_cures_end_what_they_name(seed: int, index: int) -> None:
    system = draw(seed, index)
    for cure in cures(system):
        assert cure.cause in CAUSES
        assert cure not in cures(cured(system, cure))
    # Once its readers read, large replies are what is left of some.
    left = [name for one in cures(well(system)) for (_, name), _ in one.change]
    assert left == [] or (left == ["bytes"] and system.at(CLIENT) != well(system).at(CLIENT))


@settings(deadline=None)
@given(seeds, st.integers(0, 1000))
def test_systems_can_be_built(seed: int, index: int) -> None:
    system = draw(seed, index)
    assert system.has(CLIENT) and system.has(SERVER)
    assert all(system.has(where) for where in system.attach)
    assert 10 <= system.at(SYSTEM)["bytes"] <= 10**8
    assert 1 <= system.at(CLIENT)["connections"] <= 100
    gone = [where for where in (PROXY, SERVER, UPSTREAM) if system.at(where).get("gone")]
    assert not gone or any(where not in gone for where in (PROXY, SERVER) if system.has(where))


def test_every_part_is_drawn() -> None:
    assert {one.style for one in MANY} == set(STYLES)
    assert {name for one in MANY for name in one.illnesses} == set(ILLNESSES)
    assert {len(one.illnesses) for one in MANY} == {0, 1, 2}
    assert {one.attach for one in MANY} == {(SERVER,), (PROXY,), (PROXY, SERVER)}
    assert {one.at(SYSTEM)["transport"] for one in MANY} == {"unix", "tcp"}
    assert {one.at(SERVER)["kind"] for one in MANY} == set(KINDS)
    half = sum(bool(one.at(SYSTEM).get("noise")) for one in MANY)
    assert 900 < half < 1100


def test_every_cause_that_has_cures_is_drawn() -> None:
    causes: Set[str] = {cure.cause for one in MANY for cure in cures(one)}
    # Their services speak no HTTP, which tells failures.
    assert causes == set(CAUSES) - {"healthy", "unknown", "app-failing"}


@settings(deadline=None)
@given(seeds, st.integers(0, 1000))
@example(2097153, 229)  # one client that polls for 56 MB
def test_clients_ask_often_enough_and_not_for_too_much(seed: int, index: int) -> None:
    system = draw(seed, index)
    if set(system.illnesses) & OF_CLIENTS:
        return
    knobs, size = system.at(CLIENT), system.at(SYSTEM)["bytes"]
    pause_s = (knobs.get("think_ms") or knobs.get("burst_ms") or 0) / 1000
    rate = knobs["connections"] / pause_s if pause_s else knobs["rate"]
    assert rate >= 0.99 * knobs["connections"]
    assert rate * size <= 130_000_000


def test_a_window_without_a_request_says_nothing() -> None:
    nothing = replace(found_of("connect-failing", {}), ill=Harm(0, 0, 0, 0.0, 0.0, 1.0))
    assert (nothing.truths, nothing.right) == (set(), None)


def test_every_size_is_drawn() -> None:
    sizes = [one.at(SYSTEM)["bytes"] for one in MANY]
    assert min(sizes) < 20 and max(sizes) > 50_000_000


# A proxy takes a small reply from its server whether its client reads it or not.
EITHER = {"healthy", "send-blocked"}


def test_a_proxy_has_room_for_a_small_reply_that_nobody_reads() -> None:
    small = system_of([SERVER])
    (reader,) = [one for one in cures(small) if one.where == CLIENT]
    large = small.with_({(SYSTEM, "bytes"): 50_000_000})
    assert causes_seen(small, reader) == EITHER
    assert causes_seen(large, reader) == {"send-blocked"}
    assert causes_seen(system_of([SERVER], proxy=False), reader) == {"send-blocked"}


def test_small_costs_are_cures_where_clients_do_not_pause() -> None:
    knobs = {(CLIENT, "connections"): 9, (SERVER, "spin_ms"): 0.2, (SYSTEM, "bytes"): 9}
    unpaced = System(1, 1, "closed", (SERVER,), (), tuple(sorted(knobs.items())))
    paced = unpaced.with_({(CLIENT, "think_ms"): 100})
    assert [[one.name for one in cures(each)] for each in (unpaced, paced)] == [
        ["server:app-cpu", "system:transport"],
        [],
    ]


def test_who_asks_without_a_pause_saturates_something() -> None:
    found = found_of("app-cpu", {CPU: 0.9}, ill_ms=1)
    assert (found.harmed, found.right) == ("none", False)
    unpaced = replace(found, ill=replace(found.ill, paced=False))
    assert (unpaced.harmed, unpaced.right) == ("border", True)
    assert replace(unpaced, verdict=Judgement("healthy", "")).right is True


def test_what_is_left_behind_what_cannot_be_seen_is_true_too() -> None:
    """The proxy's queue is most of the harm; the server behind it, which is observed, computes."""
    hidden = found_of("app-cpu", {CPU: 0.1, "proxy:accept-queue-full": 0.9})
    assert (hidden.truths, hidden.right) == ({"healthy"}, False)
    (cpu,) = [one for one in cures(hidden.system) if one.name == CPU]
    assert replace(hidden, behind={cpu: 0.9}).truths == {"healthy", "app-cpu"}


def test_what_is_kept_is_judged_by_what_was_measured(tmp_path: Path) -> None:
    system = draw(7, 3)
    found = replace(found_of("healthy", {}, ill_ms=1), system=system)
    path = kept.recording_of(system, tmp_path)
    kept.keep(found, tmp_path)
    assert path == tmp_path / "drawn.7.3.udsprobe"
    document = json.loads((tmp_path / "drawn.7.3.truth.json").read_text())
    assert kept.truths_of(document) == {"healthy"}
    assert kept.is_right(document, {"healthy"}, "healthy")
    assert not kept.is_right(document, {"healthy"}, "unknown")
    assert kept.is_right({**document, "attempts": 19}, {"healthy"}, "unknown")
    assert kept.judged_again(tmp_path) == "0 of 0 right, 0 before\n"


def system_of(attach: List[str], proxy: bool = True) -> System:
    knobs = {(SERVER, "spin_ms"): 9, (CLIENT, "read_rate"): 9, (SYSTEM, "bytes"): 64}
    if proxy:
        knobs[(PROXY, "backlog")] = 4
    return System(1, 1, "closed", tuple(attach), (), tuple(sorted(knobs.items())))


@pytest.mark.parametrize(
    ("attach", "seen"),
    [
        ([SERVER], {"server": {"app-cpu"}, "proxy": set(), "client": EITHER}),
        (
            [PROXY],
            {
                "server": {"upstream-wait"},
                "proxy": {"accept-queue-full"},
                "client": {"send-blocked"},
            },
        ),
        ([PROXY, SERVER], {"server": {"app-cpu"}, "proxy": {"accept-queue-full"}}),
    ],
)
def test_what_a_cause_looks_like_from_where_one_is(
    attach: List[str], seen: Dict[str, Set[str]]
) -> None:
    system = system_of(attach)
    found = {one.where: set(causes_seen(system, one)) for one in cures(system)}
    assert {where: found[where] for where in seen} == seen


def found_of(
    said: str, parts: Dict[str, float], attach: str = SERVER, ill_ms: float = 90
) -> drawn.Found:
    system = system_of([attach])
    by_name: Dict[str, Cure] = {one.name: one for one in cures(system)}
    ill, healthy = (Harm(100, 0, 0, 100 * ms, 0.0, 1.0) for ms in (ill_ms, 1.0))
    removed = {by_name[name]: part for name, part in parts.items()}
    return drawn.Found(system, Judgement(said, ""), ill, healthy, removed)


CPU = "server:app-cpu"


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (found_of("app-cpu", {CPU: 0.9}), True),
        (found_of("app-blocked", {CPU: 0.9}), False),
        (found_of("healthy", {CPU: 0.9}), False),
        (found_of("healthy", {}, ill_ms=1), True),
        (found_of("app-cpu", {}, ill_ms=1), False),
        (found_of("upstream-wait", {CPU: 0.9}, PROXY), True),
        (found_of("app-cpu", {CPU: 0.9}, PROXY), False),
        (found_of("app-cpu", {CPU: 0.5, "client:send-blocked": 0.4}), True),
        (found_of("app-cpu", {CPU: 0.5, "client:send-blocked": 0.9}), False),
        (found_of("healthy", {CPU: 0.1, "proxy:accept-queue-full": 0.9}), True),
        (found_of("app-cpu", {CPU: 0.1}), None),
    ],
)
def test_a_verdict_is_right_where_its_cure_is(found: drawn.Found, right: bool) -> None:
    assert found.right is right


def test_the_score_counts_alarms() -> None:
    quiet = found_of("healthy", {}, ill_ms=1)
    alarm = found_of("app-cpu", {}, ill_ms=1)
    said = drawn.score_of([quiet, alarm, found_of("app-cpu", {CPU: 0.9})])
    assert said.startswith("2 of 3 right (67 %); 1 alarms on 2 without harm")
    assert drawn.document_of(alarm)["true"] == ["healthy"]
    assert "WRONG" in drawn.account_of(alarm)


def test_a_wrong_verdict_beside_strangers_is_none() -> None:
    found = replace(found_of("app-blocked", {CPU: 0.9}), strangers=0.3)
    assert (found.right, replace(found, strangers=0.05).right) == (None, False)
    assert replace(found_of("app-cpu", {CPU: 0.9}), strangers=0.3).right is True
    assert "1 whose CPUs others held" in drawn.score_of([found])


def test_strangers_are_what_is_busy_and_not_ours() -> None:
    assert strangers_share((10.0, 5.0, 4.0), (20.0, 12.0, 9.0)) == pytest.approx(0.2)
    assert strangers_share((10.0, 5.0, 4.0), (20.0, 9.0, 9.0)) == 0.0
    ours = read([os.getpid()])
    assert 0.0 < ours[2] < ours[1] < ours[0]
