"""Runs udsprobe on a case, as a user would, and says what its verdict is worth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench
from tests.scenarios.case import Case, Subject
from udsprobe.commands.report import report_of
from udsprobe.recording import open_recording
from udsprobe.views.documents.report_document import document

REPOSITORY = Path(__file__).resolve().parents[2]
NO_VERDICT = "–"
# A case plants no foreign load: windows of waiting for CPUs that strangers held, and the
# hypervisor's part, above which what is said may be about them.
STRANGERS_MAX, STOLEN_MAX_PCT = 0.05, 5.0
# 1,024 is 1024 to a reader.
GROUPED = re.compile(r"(?<=\d),(?=\d{3})")


@dataclass(frozen=True)
class Judgement:
    """What one judge said about one case. `unnamed`: what its verdict should have named."""

    cause: str
    summary: str
    confidence: Optional[float] = None
    unnamed: List[str] = field(default_factory=list)
    report: Optional[Dict[str, Any]] = None
    disturbed: bool = False


def observe(case: Case, duration_s: float) -> Judgement:
    """Set the case up, observe it for `duration_s`, and end it."""
    with Bench(case.transport) as bench:
        said = judge(case.set_up(bench), duration_s)
        assert said.report is not None
        return replace(said, disturbed=disturbed(said.report, bench.family(os.getpid())))


def judge(subject: Subject, duration_s: float, recording: Optional[Path] = None) -> Judgement:
    """What `udsprobe attach` says about these processes.

    Args:
        recording: also record there, so that other rules can judge the same window.

    Raises:
        RuntimeError: udsprobe failed.
    """
    argv = [sys.executable, "-m", "udsprobe", "attach", "--json", "--duration", str(duration_s)]
    for pid in subject.pids:
        argv += ["--pid", str(pid)]
    argv += ["--record", str(recording)] if recording is not None else []
    done = subprocess.run(
        argv,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=duration_s + PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"udsprobe ended with {done.returncode}: {done.stderr[-2000:]}")
    return read(json.loads(done.stdout), subject)


def judge_again(recording: Path) -> Judgement:
    """What the rules say now about the window of a recording."""
    with open_recording(str(recording)) as opened:
        return read(document(report_of(opened, None, None)), Subject([]))


def disturbed(report: Dict[str, Any], own: Sequence[int]) -> bool:
    """Whether others than `own` processes, or the hypervisor, held the targets' CPUs."""
    stolen_pct: float = report["cpu"]["host"]["steal_pct"]
    return waited_for_strangers(report, own) > STRANGERS_MAX or stolen_pct > STOLEN_MAX_PCT


def waited_for_strangers(report: Dict[str, Any], own: Sequence[int]) -> float:
    """How long targets waited for a CPU that strangers to `own` held, in parts of that time."""
    rows = report["time"]["cpu_holders"] or []
    strange = [row for row in rows if not row["is_target"] and row["pid"] not in own]
    waited_us = sum(row["waited_us"] for row in strange)
    return float(waited_us / _observed_s(report, "cpu_holders") / 1e6)


def _observed_s(report: Dict[str, Any], measurement: str) -> float:
    """How long that was measured: in detail auto, in a window of its own."""
    rows = report["probe"]["measurements"]
    coverage = next((row["coverage"] for row in rows if row["name"] == measurement), None)
    observed_s = report["window"]["duration_s"] if coverage is None else coverage["observed_s"]
    return float(observed_s)


def read(report: Dict[str, Any], subject: Subject) -> Judgement:
    """The verdict of a report document."""
    verdict = report["verdict"]
    if verdict is None:
        return Judgement(NO_VERDICT, "no verdict", report=report)
    said = GROUPED.sub("", json.dumps(verdict, ensure_ascii=False))
    unnamed = [name for name in subject.names if name not in said]
    return Judgement(verdict["cause"], verdict["summary"], verdict["confidence"], unnamed, report)
