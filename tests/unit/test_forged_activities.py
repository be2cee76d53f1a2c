"""Activities of threads that no udsprobe writes, as a forged recording may have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Mapping

import pytest

from tests.unit import samples
from udsprobe.model.counters import UnsoundError
from udsprobe.model.requests.served_requests import app_parts_ns
from udsprobe.model.threads.thread_time import thread_time

TID = 4712


def test_an_activity_that_there_is_not() -> None:
    assert app_parts_ns({"user": 5}, 0)["cpu"] == 5
    with pytest.raises(UnsoundError, match="no activity of a thread: 'idle'"):
        app_parts_ns({"user": 5, "idle": 3}, 0)


def test_a_thread_without_one_of_them() -> None:
    whole = samples.thread(TID, user=5)
    lacking = {name: ns for name, ns in whole.activity_ns.items() if name != "runq"}
    forged = replace(whole, activity_ns=lacking)
    first, last = (samples.sample(at_s, threads=(forged,)) for at_s in (0.0, 1.0))
    with pytest.raises(UnsoundError, match="thread 4712 has no 'runq'"):
        thread_time(first, replace(last, threads=(replace(forged, activity_ns=more(lacking)),)))


def more(spent_ns: Mapping[str, int]) -> Dict[str, int]:
    return {name: ns + 10 for name, ns in spent_ns.items()}
