"""Requests kept whole, as rows of the report: parts that add up, and text that is none."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.unit.kept import call, kept, story
from tests.unit.recordings import record
from tests.unit.samples import observation, sample
from udsprobe.model.difference import report
from udsprobe.model.report import WholeRequest, WholeWait
from udsprobe.model.requests.whole_requests import PART_NAMES, whole_request
from udsprobe.recording import open_recording


def row(**changes: Any) -> WholeRequest:
    return whole_request(kept(1, text=story(**changes)))


def test_a_request_is_told_in_the_words_of_the_report() -> None:
    found = row()
    assert found.at == "2026-11-30T00:53:21.250+00:00"
    assert (found.pid, found.tid, found.connection_turn) == (4711, 4712, 7)
    assert found.parts_us == {
        "recv_wait": 50.0,
        "recv": 10.0,
        "cpu": 100.0,
        "runq": 20.0,
        "lock": 29_800.0,
        "send": 20.0,
    }
    assert found.waits == [WholeWait("lock", 29_800.0)]
    assert found.calls is not None
    assert [call.name for call in found.calls] == ["epoll_wait", "recvfrom", "futex", "sendto"]
    assert found.peer is not None and found.peer.pid == 300


@pytest.mark.parametrize(
    ("changes", "part", "us"),
    [
        # Handed over: nobody knows what the other thread did.
        ({"flags": ["handed_over"]}, "not_known", 29_920.0),
        # The thread's account is of another time than the connection's.
        ({"activity_ns": {"user": 1_000_000}}, "not_known", 29_920.0),
        # Received in two pieces.
        ({"last_gap_ns": 29_920_000 - 5_000_000}, "between_receives", 5_000.0),
        # Its bytes were there before accept() returned.
        ({"recv_wait_ns": 20_000, "queued_ns": 30_000}, "accept_wait", 30.0),
        # No tracepoint tells arrivals.
        ({"recv_wait_ns": None, "latency_ns": 29_950_000}, "recv", 10.0),
        ({"upstream_ns": 29_000_000}, "upstream", 29_000.0),
    ],
)
def test_the_parts_add_up_to_the_latency(changes: Dict[str, Any], part: str, us: float) -> None:
    if "last_gap_ns" in changes:
        changes["activity_ns"] = {"user": 100_000, "blocked_lock": 24_820_000}
    found = row(**changes)
    assert found.parts_us[part] == pytest.approx(us)
    assert sum(found.parts_us.values()) == pytest.approx(found.latency_us)


def test_parts_add_up_whatever_the_stages_are() -> None:
    draw = random.Random(7)
    for _ in range(300):
        names = ("recv_wait_ns", "recv_ns", "app_ns", "last_gap_ns", "send_ns", "queued_ns")
        changes = {name: draw.randrange(0, 20_000_000) for name in names}
        found = row(latency_ns=draw.randrange(1, 60_000_000), **changes)
        assert sum(found.parts_us.values()) == pytest.approx(found.latency_us)
        assert all(us > 0 for us in found.parts_us.values())
        assert set(found.parts_us) <= set(PART_NAMES)


def test_calls_by_the_time_since_the_one_before() -> None:
    """As a recording of schema 4 has them; before they had the time since the arrival."""
    former = kept(10)
    written = json.loads(former.story or "")
    starts = [row[1] for row in written["calls"]]
    apart = [
        [row[0], row[1] - before, *row[2:]]
        for row, before in zip(written.pop("calls"), [0, *starts])
    ]
    now = replace(former, story=json.dumps({**written, "calls_apart": apart}))
    assert whole_request(now) == whole_request(former)
    assert [row.at_us for row in whole_request(now).calls or ()] == [ns / 1e3 for ns in starts]


def test_a_window_has_its_own_slowest() -> None:
    requests = (kept(500, 9_000_000), kept(1500, 5_000_000), kept(1700, 7_000_000))
    drawn = (kept(1600, 77, is_slow=False),)
    first = sample(1.0, kept_requests=requests[:1])
    last = sample(2.0, kept_requests=(*requests, *drawn))
    found = report(observation(), first, last).requests
    assert found.slowest is not None and found.sampled is not None
    assert [each.latency_us for each in found.slowest] == [7_000.0, 5_000.0]
    assert len(found.sampled) == 1


def test_what_was_not_kept_is_not_measured() -> None:
    found = report(observation(), sample(0.0), sample(1.0)).requests
    assert found.slowest is None and found.sampled is None


@pytest.mark.parametrize(
    ("asks", "answers", "is_known"),
    [
        ({"inode": 500}, {"peer_inode": 500}, True),
        (
            {"local": "127.0.0.1:4000"},
            {"transport": "tcp", "peer_inode": 0, "peer_address": "127.0.0.1:4000"},
            True,
        ),
        # Another connection; nobody's; before it asked.
        ({"inode": 500}, {"peer_inode": 501}, False),
        ({"inode": 0}, {"peer_inode": 0}, False),
        ({"inode": 500}, {"peer_inode": 500, "unix_us": 1_796_000_001_240_100}, False),
    ],
)
def test_a_request_knows_the_one_that_it_waited_for(
    asks: Dict[str, Any], answers: Dict[str, Any], is_known: bool
) -> None:
    calls = [
        call("sendto", 1_000, 20, whose="upstream", **asks),
        call("recvfrom", 1_100, 28_000, whose="upstream", asleep=True, **asks),
    ]
    outer = kept(900, 30_000_000, calls=calls)
    times = {"unix_us": 1_796_000_001_248_000, "pid": 512, **answers}
    inner = kept(899, 20_000_000, **times)
    first, last = sample(0.5, kept_requests=()), sample(1.0, kept_requests=(inner, outer))
    found = report(observation(), first, last).requests.slowest
    assert found is not None and found[1].upstream == []
    assert [hop.pid for hop in found[0].upstream] == ([512] if is_known else [])
    if is_known:
        assert found[0].upstream[0].at_us == 8_000.0


def test_a_recording_has_them(tmp_path: Path) -> None:
    taken = [
        sample(
            float(at), kept_requests=tuple(kept(ms, 1_000 + ms) for ms in range(1, at * 900, 300))
        )
        for at in range(5)
    ]
    path = tmp_path / "recording"
    with record(path, taken) as recorder:
        assert recorder.failure is None
    with open_recording(str(path)) as recording:
        assert list(recording.samples()) == taken
        found = recording.report().requests.slowest
    assert found is not None and len(found) == 12
    assert found == report(observation(), taken[0], taken[-1]).requests.slowest


def test_a_damaged_text_is_a_value_error() -> None:
    draw, whole = random.Random(3), story()
    for _ in range(500):
        at = draw.randrange(len(whole))
        text = whole[:at] + draw.choice('{}[]":,0x-9e') + whole[at + draw.randrange(3) :]
        try:
            whole_request(kept(1, text=text))
        except ValueError:
            continue
    for wrong in ("", "null", "[]", "{}", json.dumps({"pid": []}), "[" * 100_000):
        with pytest.raises(ValueError):
            whole_request(kept(1, text=wrong))
