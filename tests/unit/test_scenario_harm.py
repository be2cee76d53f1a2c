"""The lab's measure of harm, and when a remedy is the right one."""

from __future__ import annotations

from typing import Any, Dict, Set

import pytest

from tests.scenarios import cure, knobs
from tests.scenarios.case import all_cases
from tests.scenarios.harm import Harm, of_accounts, removed, suffering
from tests.scenarios.judge import Judgement


def account(**changed: Any) -> Dict[str, Any]:
    base: Dict[str, Any] = {
        "replies": 100,
        "broken": 0,
        "unhappy": 0,
        "connect_errors": {},
        "unanswered": 0,
        "paced": True,
        "waited_us": 100_000,
        "p99_us": 2_000,
        "seconds": 1.0,
    }
    return {**base, **changed}


def harm(cost_ms: float, failed: int = 0, p99_ms: float = 0.0) -> Harm:
    return Harm(100 - failed, failed, 0, cost_ms * (100 - failed), p99_ms, 1.0)


def test_a_failure_costs_a_second() -> None:
    found = of_accounts([account(), account(connect_errors={"EAGAIN": 300}, broken=1, unhappy=1)])
    assert (found.replies, found.failed, found.attempts) == (199, 302, 501)
    assert found.cost_ms == pytest.approx((200 + 302_000) / 501)
    assert found.failed_share == pytest.approx(302 / 501)


def test_requests_without_a_reply_yet_count_with_what_they_waited() -> None:
    found = of_accounts([account(replies=0, unanswered=4, waited_us=12_000_000, p99_us=0)])
    assert (found.cost_ms, found.latency_ms) == (3000.0, 3000.0)


def test_nothing_was_asked() -> None:
    nothing = of_accounts([])
    assert (nothing.attempts, nothing.cost_ms, nothing.latency_ms) == (0, 0.0, 0.0)
    assert suffering(nothing, nothing) == "none"


@pytest.mark.parametrize(
    ("ill", "well", "says"),
    [
        (harm(1.0), harm(0.9), "none"),
        (harm(0.9), harm(0.1), "none"),  # nine times as long, and nobody notices
        (harm(40.0), harm(38.0), "none"),  # 2 ms more, and nobody notices either
        (harm(8.0), harm(4.0), "border"),
        (harm(8.0), harm(1.0), "some"),
        (harm(1.0, failed=2), harm(1.0), "some"),
        (harm(1.0, p99_ms=60.0), harm(1.0, p99_ms=2.0), "some"),
        (harm(1.0, p99_ms=15.0), harm(1.0, p99_ms=2.0), "border"),
    ],
)
def test_when_clients_suffer(ill: Harm, well: Harm, says: str) -> None:
    assert suffering(ill, well) == says


def test_who_asks_without_a_pause_suffers_from_throughput() -> None:
    well, ill = account(replies=1000, paced=False), account(replies=200, paced=False)
    assert suffering(of_accounts([ill]), of_accounts([well])) == "some"
    assert suffering(of_accounts([{**ill, "paced": True}]), of_accounts([well])) == "none"


def test_what_a_cure_takes_away() -> None:
    ill, well = harm(101.0), harm(1.0)
    assert removed(ill, harm(11.0), well) == pytest.approx(0.9)
    assert removed(ill, ill, well) == 0.0
    assert removed(ill, harm(500.0), well) == -1.0
    stuck = Harm(0, 0, 0, 0.0, 0.0, 1.0, paced=False)
    assert removed(stuck, stuck, well) == 0.0
    assert removed(stuck, well, well) == 1.0
    slow_tail = harm(2.0, p99_ms=100.0)
    assert removed(slow_tail, harm(2.0, p99_ms=50.0), harm(2.0)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("said", "right"),
    [("app-cpu", True), ("app-blocked", True), ("fd-limit", False), ("healthy", False)],
)
def test_the_right_verdict_is_the_one_whose_cure_helps_most(said: str, right: bool) -> None:
    parts = {"app-cpu": 0.95, "app-blocked": 0.85, "fd-limit": 0.6}
    assert cure.is_right(said, parts) is right
    assert not cure.is_right(said, {said: 0.4})


def test_ill_cases_say_how_they_are_cured() -> None:
    ill = [one for one in all_cases() if one.cause not in ("healthy", "unknown")]
    assert {one.name for one in ill if one.cause not in one.cures} == {
        "fd-limit/leak-towards-the-limit",  # nobody suffers yet
        "send-blocked/postgres-and-a-slow-reader",  # psql has no account of it
    }
    assert [one.name for one in all_cases() if one not in ill and one.cures] == []


def test_a_knob_is_known_by_its_cause() -> None:
    def ill(bench: object, spin_ms: int = 5, backlog: int = 511) -> None: ...

    assert knobs.cures_of(ill) == {"app-cpu": {"spin_ms": 0}}

    def unknown(bench: object, colour: str = "red") -> None: ...

    with pytest.raises(KeyError):
        knobs.cures_of(unknown)


@pytest.mark.parametrize(
    ("action", "command"),
    [
        (
            {"run": "prlimit --pid 1 --nofile=99", "effect": "changes"},
            "prlimit --pid 1 --nofile=99",
        ),
        ({"run": "ss -xl", "effect": "looks"}, None),
        ({"run": None, "effect": "changes", "do": "raise it"}, None),
    ],
)
def test_only_commands_that_change_something_are_remedies(
    action: Dict[str, Any], command: str
) -> None:
    verdict = Judgement("fd-limit", "", report={"verdict": {"actions": [action]}})
    assert cure.first_command(verdict) == command
    assert cure.first_command(Judgement("–", "", report={"verdict": None})) is None


@pytest.mark.parametrize(
    ("command", "own", "is_it"),
    [
        ('sudo renice -n 19 -p $(ps -L -o lwp= -p "666 667")', {666, 667, 668}, True),
        ('sudo renice -n 19 -p $(ps -L -o lwp= -p "666 667")', {666}, False),
        ("echo 19 | sudo tee /proc/666/autogroup", {666}, True),
        ("echo 19 | sudo tee /proc/666/autogroup /proc/1/autogroup", {666}, False),
        ("echo 19 | sudo tee /proc/666/autogroup; reboot", {666}, False),
        ("echo 1 | sudo tee /sys/fs/cgroup/user.slice/cpu.weight", {666}, False),
        ("sudo kill 666", {666}, False),
        ("echo 0 | sudo tee /proc/666/autogroup", {666}, True),
        ("for pid in 666 667; do sudo taskset -apc 0-1 $pid; done", {666, 667}, True),
        ("for pid in 666 1; do sudo taskset -apc 0-1 $pid; done", {666}, False),
    ],
)
def test_only_the_case_s_own_processes_are_slowed_down(
    command: str, own: Set[int], is_it: bool
) -> None:
    assert cure.is_sharing_out(command, own) is is_it
