"""Two drawn systems end to end: built, measured, judged, and each cure done."""

from __future__ import annotations

import pytest

from tests.conftest import Require
from tests.scenarios import drawn
from tests.scenarios.case import CAUSES
from tests.scenarios.programs import compilers
from tests.scenarios.systems import PROXY, SERVER, UPSTREAM, System

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.slow]

PROGRAM = {"seats": 128, "backlog": 511, "one_in": 1, "timer": 1, "keep": 1, "pool": 64}


def system(attach: str, **places: object) -> System:
    knobs = {}
    for where, values in places.items():
        base = PROGRAM if where in (PROXY, SERVER, UPSTREAM) else {}
        knobs.update({(where, name): value for name, value in {**base, **values}.items()})
    return System(1, 1, "closed", (attach,), (), tuple(sorted(knobs.items())))


@pytest.mark.parametrize("kind", ["loop", "threads", "prefork"])
def test_a_sleeping_service_behind_a_proxy(kind: str, require: Require) -> None:
    require(*compilers())
    found = drawn.attempt_in_quiet(
        system(
            SERVER,
            client={"connections": 4, "think_ms": 10},
            proxy={"kind": "loop"},
            server={"kind": kind, "sleep_ms": 40},
            system={"transport": "unix", "bytes": 1000},
        )
    )
    assert found.harmed == "some"
    assert found.ill.p99_ms >= 38.0 > found.well.latency_ms
    assert {one.name: part > 0.9 for one, part in found.parts.items()} == {
        "server:app-blocked": True
    }
    assert (found.verdict.cause, found.right) == ("app-blocked", True)


def test_a_quiet_one_is_left_in_peace(require: Require) -> None:
    require(*compilers())
    found = drawn.attempt_in_quiet(
        system(
            SERVER,
            client={"connections": 4, "think_ms": 20},
            server={"kind": "threads"},
            upstream={"kind": "loop"},
            system={"transport": "tcp", "bytes": 100},
        )
    )
    assert (found.ill.failed, found.harmed) == (0, "none")
    # Whether it says so too is the lab's to find out, not beside other tests.
    assert found.truths == {"healthy"}
    assert found.verdict.cause in CAUSES


def test_replies_arrive_whole_through_a_proxy_that_is_stopped_now_and_then(
    require: Require,
) -> None:
    require(*compilers())
    found = drawn.attempt(
        system(
            PROXY,
            client={"connections": 2, "slice": 65536, "slice_ms": 5},
            proxy={"kind": "loop"},
            server={"kind": "loop"},
            system={"transport": "unix", "bytes": 1_000_000},
        ),
        duration_s=1.0,
    )
    assert found.ill.p99_ms > found.well.latency_ms
    assert (found.ill.failed, found.well.failed) == (0, 0)
    assert {one.name: part > 0.9 for one, part in found.parts.items()} == {
        "client:send-blocked": True
    }
    assert found.truths == {"send-blocked"}
