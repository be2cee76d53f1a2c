"""What counts as an incident that a recording tells right, and which there are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.scenarios import incidents
from tests.scenarios.auto import WELL
from tests.scenarios.case import CAUSES
from tests.scenarios.illnesses import all_illnesses
from tests.scenarios.incidents import Incident, chosen, found, main, score_of

ILL = (1000.0, 1020.0)
BUSY = next(one for one in all_illnesses() if one.cause == "app-cpu")
RIGHT = Incident(BUSY, ILL, listed={"number": 1}, cause="app-cpu", full=(1001.5, 1025.0))


def moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, timezone.utc).isoformat()


def autopsy(number: int, begins: float, ends: float, cause: str) -> Dict[str, Any]:
    times = {"start": moment(begins), "end": moment(ends)}
    return {"number": number, **times, "causes": [cause]}


def report(begins: float, cause: str, detail: str = "full") -> Dict[str, Any]:
    return {
        "window": {"start": moment(begins), "duration_s": 1.0},
        "probe": {"detail": detail},
        "verdict": {"cause": cause},
    }


def test_every_cause_of_harm_has_incidents() -> None:
    illnesses = all_illnesses()
    assert len(illnesses) == len({one.name for one in illnesses}) == 27
    counts = Counter(one.cause for one in illnesses)
    # Light does not see what replies say: windows find it as they come, not when it begins.
    assert set(counts) == set(CAUSES) - set(WELL) - {"app-failing"}
    assert max(counts.values()) == 3


def test_they_begin_at_moments_spread_over_the_period_of_windows() -> None:
    before = [before_s for _, before_s in chosen(None)]
    steps = {round(later - sooner, 6) for sooner, later in zip(before, before[1:])}
    assert steps == {round(incidents.PERIOD_S / len(before), 6)}
    assert [one for one, _ in chosen(["app-cpu"])] == [
        one for one in all_illnesses() if one.cause == "app-cpu"
    ]
    assert dict.fromkeys(one.name for one, _ in chosen([BUSY.name])) == {BUSY.name: None}


def test_an_incident_is_right_with_its_cause_and_full_detail_in_time() -> None:
    assert (RIGHT.right, RIGHT.full_after_s, RIGHT.full_share) == (True, 1.5, 18.5 / 20)
    scheduled = replace(RIGHT, full=(999.0, 1025.0))
    assert (scheduled.right, scheduled.full_after_s) == (True, 0.0)
    late = replace(RIGHT, full=(1002.5, 1025.0))
    before = replace(RIGHT, full=(990.0, 999.0))
    assert before.full_after_s is None
    wrong = [
        late,
        before,
        replace(RIGHT, full=None),
        replace(RIGHT, full=(990.0, 1025.0)),
        replace(RIGHT, cause="app-blocked"),
        replace(RIGHT, others=["send-blocked"]),
        Incident(BUSY, ILL),
    ]
    assert not any(each.right for each in wrong)
    assert score_of([RIGHT, *wrong, Incident(BUSY, error="not installed: node")]) == (
        "1 of 8 right: 7 listed, 6 with their cause, 3 in full detail within 2 s; "
        "1 in a window that was open for something else; false alarms in 1; 1 not tried"
    )


def test_what_a_recording_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [
        autopsy(1, 900.0, 910.0, "send-blocked"),
        autopsy(2, 1001.0, 1024.0, "app-cpu"),
        autopsy(3, 1031.0, 1035.0, "fd-limit"),
    ]
    shown = [report(1000.5, "healthy"), report(1001.5, "app-cpu")]
    asked: List[str] = []

    def udsprobe(*words: str) -> str:
        asked.append(words[0])
        if words[0] == "autopsies":
            return json.dumps({"autopsies": listed})
        assert words[-2:] == ("--autopsy", "2")
        return "\n".join(map(json.dumps, shown if words[0] == "replay" else shown[1:]))

    monkeypatch.setattr(incidents, "udsprobe", udsprobe)
    told = found(BUSY, ILL, Path("recording"))
    assert asked == ["autopsies", "report", "replay"]
    assert (told.listed, told.cause, told.full) == (listed[1], "app-cpu", (1000.5, 1002.5))
    assert told.others == ["send-blocked", "fd-limit"]
    shown[1] = report(1001.5, "app-cpu", "light")
    assert found(BUSY, ILL, Path("recording")).full is None
    listed[1] = autopsy(2, 997.0, 1024.0, "cpu-contention")
    listed[1]["causes"].append("app-cpu")
    assert found(BUSY, ILL, Path("recording")).others[2:] == ["cpu-contention"]
    del listed[1]
    assert found(BUSY, ILL, Path("recording")).listed is None


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "fd-limit"]) == 0
    assert "fd-limit/too-many-clients-of-go" in capsys.readouterr().out
    assert main(["--only", "no-such"]) == 2
