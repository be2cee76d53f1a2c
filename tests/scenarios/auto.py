"""Detail auto on a case: how long until its verdict is the true one, and whether any is false.

An ill case is observed until two reports running name its cause, and for a minute at most. One that
is well is observed for 20 s, in which a verdict of harm is a false alarm.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import IO, Any, Dict, Iterable, Iterator, List, Optional, Sequence

from tests.patience import PATIENCE_S
from tests.scenarios import judge
from tests.scenarios.bench import Bench
from tests.scenarios.case import Case, Subject
from tests.scenarios.programs import missing

WITHIN_S = 60.0
QUIET_S = 20.0
RUNNING = 2
WELL = ("healthy", "unknown")

Report = Dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One case in one run.

    Attributes:
        said: the cause of each report, in their order; "–" where a report has no verdict.
        after_s: from the first sample to the last report; None: the case could not be run.
        last: the newest report.
        disturbed: strangers to the case held its CPUs at the end.
        error: why it could not be run.
    """

    case: Case
    run: int
    said: List[str] = field(default_factory=list)
    after_s: Optional[float] = None
    last: Optional[Report] = None
    disturbed: bool = False
    error: str = ""

    @property
    def alarms(self) -> List[str]:
        """Of a case that is well: the causes that were named."""
        if self.case.cause not in WELL:
            return []
        return [cause for cause in self.said if cause not in (*WELL, judge.NO_VERDICT)]

    @property
    def right(self) -> bool:
        """Whether it ended with the true cause, and without a false alarm."""
        return not self.alarms and is_settled(self.said, self.case.cause)


def is_settled(said: Sequence[str], cause: str) -> bool:
    """Whether the last reports running have this cause."""
    return len(said) >= RUNNING and set(said[-RUNNING:]) == {cause}


def attempt(case: Case, run: int, within_s: float) -> Trial:
    """Set the case up and observe it, an ill one for so long at most; an error is an outcome."""
    absent = missing(case.needs)
    if absent:
        return Trial(case, run, error=f"not installed: {', '.join(absent)}")
    try:
        with Bench(case.transport) as bench:
            trial = observe(case, run, case.set_up(bench), within_s)
            own = bench.family(os.getpid())
            is_disturbed = trial.last is not None and judge.disturbed(trial.last, own)
            return replace(trial, disturbed=is_disturbed)
    except Exception as error:  # one broken case must not end the lab
        return Trial(case, run, error=f"{type(error).__name__}: {error}")


def observe(case: Case, run: int, subject: Subject, within_s: float) -> Trial:
    """What the reports say of a case that is set up."""
    is_well = case.cause in WELL
    with reports(subject.pids, QUIET_S if is_well else within_s) as coming:
        return followed(case, run, coming)


def followed(case: Case, run: int, coming: Iterable[Report]) -> Trial:
    """The trial that these reports are; it takes no more of them than it needs."""
    is_well = case.cause in WELL
    said: List[str] = []
    last: Optional[Report] = None
    began_s = 0.0
    for report in coming:
        if last is None:
            began_s = unix_s(report)
        last = report
        said.append(cause_of(report))
        if not is_well and is_settled(said, case.cause):
            break
    after_s = None if last is None else end_unix_s(last) - began_s
    error = "" if said else "there was no report"
    return Trial(case, run, said, after_s, last, error=error)


@contextmanager
def reports(pids: Sequence[int], duration_s: float) -> Iterator[Iterator[Report]]:
    """Those of `udsprobe attach --detail auto --jsonl`, as they come, until the block is left.

    Raises:
        RuntimeError: udsprobe failed.
    """
    argv = [sys.executable, "-m", "udsprobe", "attach", "--detail", "auto", "--jsonl"]
    argv += ["--duration", str(duration_s), *(word for pid in pids for word in ("--pid", str(pid)))]
    with tempfile.TemporaryFile("w+") as errors:
        attached = subprocess.Popen(
            argv,
            cwd=judge.REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert attached.stdout is not None
            yield (json.loads(line) for line in attached.stdout)
        finally:
            _end(attached)
        if attached.returncode:
            raise RuntimeError(f"udsprobe ended with {attached.returncode}: {_tail(errors)}")


def _end(attached: subprocess.Popen[str]) -> None:
    attached.terminate()
    try:
        attached.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        attached.kill()
        attached.communicate()


def _tail(errors: IO[str]) -> str:
    errors.seek(0)
    return errors.read()[-2000:]


def cause_of(report: Report) -> str:
    """What a report document names."""
    verdict = report["verdict"]
    return judge.NO_VERDICT if verdict is None else str(verdict["cause"])


def unix_s(report: Report) -> float:
    """When what it is about began."""
    return datetime.fromisoformat(report["window"]["start"]).timestamp()


def end_unix_s(report: Report) -> float:
    """When that ended."""
    return unix_s(report) + float(report["window"]["duration_s"])


def line_of(trial: Trial) -> str:
    """One line for a person."""
    name = trial.case.name
    if trial.error:
        return f"ERROR {name}: {trial.error}"
    mark = "ok   " if trial.right else "ALARM" if trial.alarms else "WRONG"
    said = f": {course_of(trial.said)}" if not trial.right else ""
    beside = " (others held the CPUs)" if not trial.right and trial.disturbed else ""
    return f"{mark} {name} after {trial.after_s:.0f} s{said}{beside}"


def course_of(said: Sequence[str]) -> str:
    """Causes one after the other: `healthy 12, app-cpu 3, healthy`."""
    runs: List[List[str]] = []
    for cause in said:
        if runs and runs[-1][0] == cause:
            runs[-1].append(cause)
        else:
            runs.append([cause])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} {len(run)}" for run in runs)


def summary_of(trials: Sequence[Trial]) -> str:
    """Those that are not right, how many are, and how long they took."""
    ran = [one for one in trials if not one.error]
    ill = [one for one in ran if one.case.cause not in WELL]
    well = [one for one in ran if one.case.cause in WELL]
    right = sum(one.right for one in ran)
    lines = [line_of(one) for one in trials if not one.right]
    lines.append(
        f"{right} of {len(ran)} right, {len(ran) - right} wrong, {len(trials) - len(ran)} not run"
    )
    lines.append(f"false alarms: {sum(bool(one.alarms) for one in well)} of {len(well)} well cases")
    took = [one.after_s for one in ill if one.right and one.after_s is not None]
    if took:
        median, most = statistics.median(took), max(took)
        lines.append(f"until the verdict: median {median:.1f} s, max {most:.1f} s")
    return "\n".join(lines) + "\n"


def document_of(trial: Trial) -> Dict[str, Any]:
    """A trial for a program."""
    return {
        "case": trial.case.name,
        "cause": trial.case.cause,
        "run": trial.run,
        "right": trial.right,
        "false_alarms": trial.alarms,
        "after_s": None if trial.after_s is None else round(trial.after_s, 3),
        "said": trial.said,
        "disturbed": trial.disturbed,
        "error": trial.error or None,
    }
