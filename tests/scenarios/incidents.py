"""Incidents in recordings that nobody watches: is each listed, with its cause and in full detail?

A service that is well is recorded by `udsprobe record --ring`, falls ill for 20 s and is well
again. Afterwards `udsprobe autopsies`, `report` and `replay` say what the recording has of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from tests.patience import PATIENCE_S
from tests.scenarios import judge
from tests.scenarios.auto import cause_of, end_unix_s, unix_s
from tests.scenarios.bench import Bench, Process
from tests.scenarios.illnesses import Illness, all_illnesses
from tests.scenarios.lab import length_s
from tests.scenarios.programs import missing

ILL_S = 20.0
# Full detail comes each 30 s: incidents begin at moments spread evenly between two.
PERIOD_S = 30.0
WELL_BEFORE_S = 35.0
# An autopsy is over after ten seconds without a cause.
WELL_AFTER_S = 20.0
# A verdict is about ten seconds, so it may name a cause as long after it has gone.
VERDICT_S = 10.0
FULL_WITHIN_S = 2.0

Span = Tuple[float, float]


@dataclass(frozen=True)
class Incident:
    """What a recording has of an illness.

    Attributes:
        ill: from when to when, in seconds since the epoch.
        listed: the autopsy that overlaps it most; None: there is none.
        cause: what the report of that names.
        full: from when to when that has full detail; None: it has none.
        others: causes that were named while the service was well.
        error: why it could not be tried.
    """

    illness: Illness
    ill: Span = (0.0, 0.0)
    listed: Optional[Dict[str, Any]] = None
    cause: Optional[str] = None
    full: Optional[Span] = None
    others: List[str] = field(default_factory=list)
    error: str = ""

    @property
    def full_after_s(self) -> Optional[float]:
        """How long after it began full detail was there; None: never while it lasted."""
        if self.full is None or overlap_s(self.full, self.ill) <= 0:
            return None
        return max(0.0, self.full[0] - self.ill[0])

    @property
    def in_time(self) -> bool:
        """Whether full detail was there soon enough."""
        return self.full_after_s is not None and self.full_after_s <= FULL_WITHIN_S

    @property
    def open_before(self) -> bool:
        """Whether the window was open for something else: then it proves nothing.

        A window of the schedule is shorter.
        """
        return self.full_after_s is not None and began_before(self.full, self.ill)

    @property
    def full_share(self) -> float:
        """The part of it that has full detail."""
        return 0.0 if self.full is None else overlap_s(self.full, self.ill) / span_s(self.ill)

    @property
    def right(self) -> bool:
        """Whether it is listed with its cause, in full detail in time, and nothing else is."""
        is_told = self.cause == self.illness.cause and self.in_time
        return is_told and not self.others and not self.open_before


def span_s(span: Span) -> float:
    """How long it is."""
    return span[1] - span[0]


def overlap_s(one: Span, other: Span) -> float:
    """How long both last; below 0 where they do not meet."""
    return min(one[1], other[1]) - max(one[0], other[0])


def began_before(span: Optional[Span], ill: Span) -> bool:
    """Whether it began clearly before the illness did."""
    return span is not None and span[0] < ill[0] - FULL_WITHIN_S


def attempt(illness: Illness, before_s: float, ill_s: float, kept: Optional[Path]) -> Incident:
    """Have it happen while it is recorded; an error is an outcome.

    Args:
        before_s: how long the service is recorded before.
        kept: the folder into which the recording goes; None: it does not stay.
    """
    absent = missing(illness.needs)
    if absent:
        return Incident(illness, error=f"not installed: {', '.join(absent)}")
    try:
        with Bench(illness.transport) as bench:
            recording = bench.folder / "recording.udsprobe"
            ill = _happen(illness, bench, recording, before_s, ill_s)
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
                name = illness.name.replace("/", ".")
                shutil.copy(recording, kept / f"{name}.udsprobe")
            return found(illness, ill, recording)
    except Exception as error:  # one broken illness must not end the others
        return Incident(illness, error=f"{type(error).__name__}: {error}")


def _happen(illness: Illness, bench: Bench, recording: Path, before_s: float, ill_s: float) -> Span:
    """Record a service that is well, ill and well again; when it was ill."""
    course = illness.course(bench)
    recorder = _recorder(bench, next(course), recording)
    time.sleep(before_s)
    began_s = time.time()
    next(course)
    time.sleep(max(0.0, began_s + ill_s - time.time()))
    ended_s = time.time()
    for _ in course:
        raise AssertionError(f"{illness.name} yields more than twice")
    time.sleep(WELL_AFTER_S)
    _end(recorder)
    return began_s, ended_s


def _recorder(bench: Bench, pids: Sequence[int], recording: Path) -> Process:
    ready = bench.folder / "ready"
    argv = [sys.executable, "-m", "udsprobe", "record", "-o", str(recording), "--ring", "2h"]
    argv += ["--ready-file", str(ready), *(word for pid in pids for word in ("--pid", str(pid)))]
    recorder = bench.start(argv, "record", cwd=judge.REPOSITORY)
    bench.wait_until(ready.exists, "it is recorded", recorder)
    return recorder


def _end(recorder: Process) -> None:
    recorder.popen.send_signal(signal.SIGTERM)
    if recorder.popen.wait(PATIENCE_S):
        said = recorder.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"udsprobe ended with {recorder.popen.returncode}: {said}")


def found(illness: Illness, ill: Span, recording: Path) -> Incident:
    """What `udsprobe` says of a recording."""
    listed = json.loads(udsprobe("autopsies", str(recording), "--json"))["autopsies"]
    within = (ill[0], ill[1] + VERDICT_S)
    of_it = [each for each in listed if overlap_s(_span_of(each), within) >= 0]
    others = [">".join(each["causes"]) for each in listed if each not in of_it]
    if not of_it:
        return Incident(illness, ill, others=others)
    most = max(of_it, key=lambda each: overlap_s(_span_of(each), within))
    if began_before(_span_of(most), ill):
        others.append(most["causes"][0])
    at = ["--autopsy", str(most["number"])]
    report = json.loads(udsprobe("report", str(recording), "--json", *at))
    replayed = udsprobe("replay", str(recording), "--jsonl", *at)
    shown = [json.loads(line) for line in replayed.splitlines()]
    is_full = report["probe"]["detail"] == "full"
    full = (unix_s(shown[0]), end_unix_s(shown[-1])) if is_full and shown else None
    return Incident(illness, ill, most, cause_of(report), full, others)


def _span_of(autopsy: Dict[str, Any]) -> Span:
    begins, ends = (_unix_s(autopsy[name]) for name in ("start", "end"))
    return begins, ends


def _unix_s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def udsprobe(*words: str) -> str:
    """What it prints.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "udsprobe", *words],
        cwd=judge.REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"udsprobe {words[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


HEAD = ("incident", "listed", "cause", "full after", "full for", "right")


def cells_of(incident: Incident) -> Tuple[str, ...]:
    """A row of the table."""
    after_s = incident.full_after_s
    others = f", and {', '.join(incident.others)} while it was well" if incident.others else ""
    return (
        incident.illness.name,
        "no" if incident.listed is None else "yes",
        (incident.error or incident.cause or "–") + others,
        "–" if after_s is None else "before" if incident.open_before else f"{after_s:.1f} s",
        f"{100 * incident.full_share:.0f} %",
        "ERROR" if incident.error else "yes" if incident.right else "NO",
    )


def table_of(incidents: Sequence[Incident]) -> str:
    """All of them, and how many are right."""
    rows = [HEAD, *map(cells_of, incidents)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, score_of(incidents)]) + "\n"


def score_of(incidents: Sequence[Incident]) -> str:
    """How many are told right, and in what."""
    tried = [one for one in incidents if not one.error]
    return (
        f"{sum(one.right for one in tried)} of {len(tried)} right: "
        f"{sum(one.listed is not None for one in tried)} listed, "
        f"{sum(one.cause == one.illness.cause for one in tried)} with their cause, "
        f"{sum(one.in_time and not one.open_before for one in tried)} in full detail within "
        f"{FULL_WITHIN_S:g} s; {sum(one.open_before for one in tried)} in a window that was open "
        "for something else; "
        f"false alarms in {sum(bool(one.others) for one in tried)}; "
        f"{len(incidents) - len(tried)} not tried"
    )


def document_of(incident: Incident) -> Dict[str, Any]:
    """An incident for a program."""
    return {
        "incident": incident.illness.name,
        "true_cause": incident.illness.cause,
        "right": incident.right,
        "listed": incident.listed,
        "cause": incident.cause,
        "ill_unix_s": incident.ill,
        "full_unix_s": incident.full,
        "full_after_s": incident.full_after_s,
        "open_before": incident.open_before,
        "false_alarms": incident.others,
        "error": incident.error or None,
    }


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/incidents",
        description="A service under record --ring falls ill for 20 s: does the recording tell?",
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="names or causes")
    parser.add_argument(
        "--seconds", type=length_s, default=ILL_S, metavar="TIME", help="of illness: 20s"
    )
    parser.add_argument(
        "--before",
        type=length_s,
        metavar="TIME",
        help="that the service is well before: 35s to 65s, spread over the period of full detail",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings there")
    parser.add_argument("--json", action="store_true", help="what was found as one document")
    parser.add_argument("--list", action="store_true", help="the illnesses, and have none")
    return parser.parse_args(argv)


def chosen(patterns: Optional[Sequence[str]]) -> Iterator[Tuple[Illness, float]]:
    """Those that fit a pattern, all for none, and how long each is well before by default."""
    everyone = all_illnesses()
    for number, one in enumerate(everyone):
        words = (one.name, one.name.partition("/")[2], one.cause)
        if not patterns or any(fnmatch(word, each) for word in words for each in patterns):
            yield one, WELL_BEFORE_S + PERIOD_S * number / len(everyone)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """0: every incident is told right; 1: not; 2: none fits."""
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    illnesses = list(chosen(options.only))
    if not illnesses:
        sys.stderr.write("incidents: none fits; see --list\n")
        return 2
    if options.list:
        lines = [
            f"{one.name}: {' '.join((one.course.__doc__ or '').split())}" for one, _ in illnesses
        ]
        sys.stdout.write("\n".join([*lines, f"{len(lines)} incidents"]) + "\n")
        return 0
    # So that a bench is left, and its processes ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    incidents: List[Incident] = []
    for one, before_s in illnesses:
        incidents.append(attempt(one, options.before or before_s, options.seconds, options.keep))
        sys.stderr.write("  ".join(cells_of(incidents[-1])) + "\n")
    if options.json:
        documents = [document_of(one) for one in incidents]
        sys.stdout.write(json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(table_of(incidents))
    return 0 if all(one.right for one in incidents) else 1


if __name__ == "__main__":
    sys.exit(main())
