"""Stages of served requests against a server that stamps both sides of its own calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import pytest

from tests.conftest import give_up
from tests.kernel.tool import Attached
from tests.patience import SLOWNESS
from tests.workloads import stages_program
from tests.workloads.build import BuildError

pytestmark = [pytest.mark.root]

KINDS = ("unix", "tcp4", "tcp6")
MS = 1_000_000
DELAYS_NS = (MS // 10, MS, 10 * MS)
STAGES = ("recv_wait", "recv", "app", "send")
# The tolerance of the promise: 5 %, or 50 µs where a stage is short.
RELATIVE, ABSOLUTE_US = 0.05 * SLOWNESS, 50.0 * SLOWNESS
ATTEMPTS = 3


class Observed(NamedTuple):
    """What the server knows, and what the report says of the same requests."""

    truth: Dict[str, Any]
    report: Dict[str, Any]

    @property
    def served(self) -> Dict[str, Any]:
        found = self.report["requests"]["served"]
        assert isinstance(found, dict)
        return found

    def mean_us(self, stage: str) -> float:
        """Of a stage, or of the whole `latency`."""
        stages = {**self.served["stages_us"], "latency": self.served["latency_us"]}
        latency = stages[stage]
        return float(latency["mean"] or 0.0)

    def true_us(self, stage: str, count: str = "count") -> float:
        return float(self.truth[stage] / self.truth[count] / 1000)

    def error_us(self, stage: str, mean_us: float) -> float:
        """How far a mean is from the truth, which is known as a range: bytes arrive at
        some moment of the client's send()."""
        most = self.true_us(stage)
        least = self.true_us(f"{stage}_least") if f"{stage}_least" in self.truth else most
        return max(mean_us - most, least - mean_us, 0.0)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Wrong = Callable[[Observed], List[str]]


def nothing(seen: Observed) -> List[str]:
    return []


def observe(
    kind: str,
    folder: Path,
    also: Wrong = nothing,
    stages: Sequence[str] = (*STAGES, "latency"),
    **plan: int,
) -> Observed:
    """One whose clocks agree, if one of three does: a server that loses its CPU between a
    stamp and the call beside it knows its own times wrongly, and a client that loses it asks
    late. A wrong count is returned at once.

    Args:
        also: what else is wrong with times of one observation.
        stages: whose means must be the server's.
    """
    for _ in range(ATTEMPTS):
        seen = observe_once(kind, folder, **plan)
        wrong = [*wrong_stages(seen, stages), *also(seen)]
        if seen.served["count"] != seen.truth["count"] or not wrong:
            return seen
    raise AssertionError(wrong)


def at_least(stage: str, least_us: float) -> Wrong:
    """The mean of a stage is longer than this."""
    return lambda seen: [f"{stage} {seen.mean_us(stage)}"] * (seen.mean_us(stage) <= least_us)


def at_most(stage: str, most_us: float) -> Wrong:
    """The mean of a stage is shorter than this."""
    return lambda seen: [f"{stage} {seen.mean_us(stage)}"] * (seen.mean_us(stage) >= most_us)


def observe_once(kind: str, folder: Path, **plan: int) -> Observed:
    """Attach to the server, not to its client, and let it serve."""
    where = str(folder / "socket") if kind == "unix" else kind
    try:
        server = stages_program.Program("stages_server", where, *stages_program.options(**plan))
    except BuildError as error:
        give_up(str(error))
        raise
    with server:
        server.line()
        with Attached(["--pid", str(server.pid), "--no-follow"], folder) as watched:
            server.go()
            truth = server.document()
        lost = watched.report["probe"]["events_lost"]
        assert lost["map_full"] == lost["ring_full"] == 0
        return Observed(truth, watched.report)


def turns(delay_ns: int) -> int:
    """Many of the short, so that one unlucky preemption is no mean; few of the long."""
    return max(25, min(300, 300 * MS // delay_ns))


def close_to(truth_us: float) -> Any:
    return pytest.approx(truth_us, rel=RELATIVE, abs=ABSOLUTE_US)


def wrong_stages(seen: Observed, stages: Sequence[str]) -> List[str]:
    """Means that are not the server's own."""
    return [
        f"{name}: {seen.mean_us(name)} µs, not {seen.true_us(name):.3f}"
        for name in stages
        if seen.error_us(name, seen.mean_us(name)) > max(ABSOLUTE_US, RELATIVE * seen.true_us(name))
    ]


def assert_stages_are_true(seen: Observed, requests: Optional[int] = None) -> None:
    """Every count exact, and the stages a partition; their means `observe` has compared."""
    served, count = seen.served, seen.truth["count"]
    assert requests is None or count == requests
    assert served["count"] == served["latency_us"]["count"] == count
    for stage in STAGES:
        assert served["stages_us"][stage]["count"] == count
    assert sum(map(seen.mean_us, STAGES)) == close_to(served["latency_us"]["mean"])


@pytest.mark.parametrize("delay_ns", DELAYS_NS)
def test_bytes_wait_for_a_server_that_reads_late(kind: str, folder: Path, delay_ns: int) -> None:
    late = at_least("recv_wait", delay_ns / 2000)
    seen = observe(kind, folder, late, turns=turns(delay_ns), before_read=delay_ns)
    assert_stages_are_true(seen, turns(delay_ns))
    assert seen.served["turn_based"] is True


@pytest.mark.parametrize("delay_ns", DELAYS_NS)
def test_a_server_that_waits_for_bytes_owes_nothing(kind: str, folder: Path, delay_ns: int) -> None:
    """The client thinks; the server is inside recv() all that time."""
    there = at_most("recv_wait", ABSOLUTE_US)
    seen = observe(kind, folder, there, turns=turns(delay_ns), think=delay_ns)
    assert_stages_are_true(seen, turns(delay_ns))


def test_a_request_in_three_pieces(kind: str, folder: Path) -> None:
    long = at_least("recv", 1500)
    seen = observe(kind, folder, long, turns=60, pieces=3, request=96, gap=MS, sleeps=MS)
    assert_stages_are_true(seen, 60)
    assert seen.served["turn_based"] is True


def test_a_reply_in_several_sends(kind: str, folder: Path) -> None:
    """A request ends when the send that starts the reply returns."""
    seen = observe(kind, folder, at_most("latency", 1000), turns=60, sends=3, between_sends=MS)
    assert_stages_are_true(seen, 60)
    assert seen.served["turn_based"] is True


@pytest.mark.parametrize("delay_ns", DELAYS_NS)
def test_an_application_that_works(kind: str, folder: Path, delay_ns: int) -> None:
    seen = observe(kind, folder, not_all_of_app("cpu"), turns=turns(delay_ns), spins=delay_ns)
    assert_stages_are_true(seen, turns(delay_ns))


@pytest.mark.parametrize("delay_ns", DELAYS_NS)
def test_an_application_that_sleeps(kind: str, folder: Path, delay_ns: int) -> None:
    """It gets a CPU a while after the time it asked for: that is not sleep."""

    def wrong(seen: Observed) -> List[str]:
        asleep_us = app_parts_us(seen)["other"]
        short = [f"asleep {asleep_us} µs"] * (asleep_us < (1 - RELATIVE) * delay_ns / 1000)
        return [*short, *not_all_of_app("other")(seen)]

    seen = observe(kind, folder, wrong, turns=turns(delay_ns), sleeps=delay_ns)
    assert_stages_are_true(seen, turns(delay_ns))


def not_all_of_app(part: str) -> Wrong:
    """The application's time is this and waiting for a CPU."""

    def wrong(seen: Observed) -> List[str]:
        parts = app_parts_us(seen)
        is_all = parts[part] + parts["runq"] == close_to(seen.mean_us("app"))
        return [] if is_all else [f"{parts} of {seen.mean_us('app')}"]

    return wrong


def app_parts_us(seen: Observed) -> Dict[str, float]:
    """What the mean request's time in the application consists of."""
    shares = seen.served["app_time_pct"]
    assert sum(shares.values()) == pytest.approx(100, abs=0.01)
    return {part: share * seen.mean_us("app") / 100 for part, share in shares.items()}


@pytest.mark.parametrize("delay_ns", DELAYS_NS)
def test_a_connection_that_waits_to_be_accepted(kind: str, folder: Path, delay_ns: int) -> None:
    """Its first request is there before accept(), and waits for nothing twice."""
    count = turns(delay_ns) // 2

    def wrong(seen: Observed) -> List[str]:
        true_us = seen.true_us("accept_wait", "accepted")
        is_true = seen.mean_us("accept_wait") == close_to(true_us)
        apart = [] if is_true else [f"{seen.mean_us('accept_wait')}, not {true_us}"]
        return [*apart, *at_least("accept_wait", delay_ns / 2000)(seen)]

    served = observe(kind, folder, wrong, connections=count, before_accept=delay_ns).served
    assert served["count"] == served["stages_us"]["accept_wait"]["count"] == count


def test_only_the_first_request_of_a_connection_waits_to_be_accepted(
    kind: str, folder: Path
) -> None:
    seen = observe(kind, folder, connections=5, turns=10)
    assert seen.served["count"] == 50
    assert seen.served["stages_us"]["accept_wait"]["count"] == 5


@pytest.mark.parametrize("read_to_end", [0, 1])
def test_a_client_that_closes_its_half(kind: str, folder: Path, read_to_end: int) -> None:
    """The end of the stream is no second request."""
    seen = observe(
        kind, folder, connections=50, think=MS, half_close=1, read_to_end=read_to_end, sleeps=MS
    )
    assert_stages_are_true(seen, 50)
    assert seen.served["turn_based"] is True


def test_a_server_that_speaks_first(kind: str, folder: Path) -> None:
    seen = observe(kind, folder, connections=5, turns=20, banner=1, think=MS, sleeps=MS)
    assert_stages_are_true(seen, 100)
    assert seen.served["turn_based"] is True


@pytest.mark.parametrize("plan", [{"gap": MS // 2, "sleeps": MS}, {"before_read": MS}])
def test_requests_sent_ahead_are_noticed(kind: str, folder: Path, plan: Dict[str, int]) -> None:
    """The second comes while the first is worked on, or both are there before it is read."""
    seen = observe(kind, folder, turns=100, ahead=2, think=MS, **plan)
    assert seen.served["count"] == 100
    assert seen.served["turn_based"] is False


def test_a_peek_takes_nothing(kind: str, folder: Path) -> None:
    """Bytes that were only looked at wait on, and are counted when they are read."""
    seen = observe(kind, folder, at_least("recv_wait", 500), turns=60, peek=MS, sleeps=MS)
    assert_stages_are_true(seen, 60)
    assert seen.served["turn_based"] is True


def test_a_read_of_nothing_begins_no_request(kind: str, folder: Path) -> None:
    seen = observe(kind, folder, turns=60, think=MS, empty_read=1)
    assert_stages_are_true(seen, 60)


def test_a_request_answered_by_another_thread(kind: str, folder: Path) -> None:
    seen = observe(kind, folder, turns=60, sleeps=MS, hand_over=1)
    assert_stages_are_true(seen, 60)
    assert seen.served["app_time_pct"] is None


@pytest.mark.parametrize("polled", [0, 1])
def test_a_large_request_is_no_pipeline(kind: str, folder: Path, polled: int) -> None:
    """It is read while it still arrives, and nothing of it is left for the next turn."""
    seen = observe(
        kind, folder, turns=300, request=1 << 18, receive_max=1 << 14, polled=polled, think=MS // 10
    )
    assert_stages_are_true(seen, 300)
    assert seen.served["turn_based"] is True


def test_a_push_that_is_blocked_meanwhile_is_no_reply(kind: str, folder: Path) -> None:
    """Another thread is inside send() when the request comes; its bytes are not the answer."""
    # When bytes arrive at a TCP socket that is busy sending, the client cannot know.
    stages = ("app", "send")
    seen = observe(kind, folder, at_least("app", 500), stages, turns=20, push=1 << 24, gap=MS)
    assert seen.served["count"] == seen.truth["count"] == 20
