"""Truth by doing: a case is measured, the verdict's remedy is applied, and it is measured again.

A verdict is right when its remedy removes most of the harm, and no other cure of the case more.
Harm is what the clients account for; udsprobe measures none of it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from tests.patience import PATIENCE_S
from tests.scenarios import judge
from tests.scenarios.bench import Bench
from tests.scenarios.case import Case, Subject
from tests.scenarios.harm import MOST, Harm, removed, suffering
from tests.scenarios.judge import Judgement

WINDOW_S = 3.0
# Two windows of the same system differ by so much of its harm.
MORE_MIN = 0.15
# Commands that can be kept to the case's own processes and files.
KEPT_TO_THE_CASE = ("prlimit", "chmod", "setfacl", "redis-cli")
# With whom they change how the CPUs are shared out, or how many threads there may be.
SHARING_OUT = (
    r'sudo renice -n (?:0|19) -p \$\(ps -L -o lwp= -p "([\d ]+)"\)',
    r"echo (?:0|19) \| sudo tee((?: /proc/\d+/autogroup)+)",
    r"for pid in ([\d ]+); do sudo taskset -apc [\d,-]+ \$pid; done",
    r"echo \d+ \| sudo tee /sys/fs/cgroup/(?:pids/)?udsprobe-tasks-(\d+)/pids\.max",
)


@dataclass(frozen=True)
class Trial:
    """A case before and after. `after`: by cause, with its cure done. `by`: how the first was."""

    case: Case
    verdict: Judgement
    before: Harm
    after: Dict[str, Harm] = field(default_factory=dict)
    well: Optional[Harm] = None
    by: str = "knob"

    @property
    def parts(self) -> Dict[str, float]:
        """By cause: the part of the harm that its cure removed."""
        if self.well is None:
            return {}
        return {cause: removed(self.before, one, self.well) for cause, one in self.after.items()}

    @property
    def harmed(self) -> str:
        return suffering(self.before, self.well) if self.well is not None else "unknown"

    @property
    def right(self) -> Optional[bool]:
        """None where clients suffer nothing: there is no harm to remove."""
        if self.harmed in ("none", "unknown"):
            return None
        return is_right(self.verdict.cause, self.parts)


def is_right(said: str, parts: Mapping[str, float]) -> bool:
    """Whether the cure of the cause that was said removed most, and no other clearly more."""
    part = parts.get(said, 0.0)
    return part >= MOST and part >= max(parts.values()) - MORE_MIN


def attempt(case: Case, duration_s: float) -> Trial:
    """Measure, ask udsprobe, apply its remedy and every other cure, and measure each time."""
    with Bench(case.transport) as bench:
        subject = case.set_up(bench)
        before = bench.measure(WINDOW_S)
        verdict = judge.judge(subject, duration_s)
        by_command = _by_command(bench, subject, verdict)
    after = {cause: measured(case, change) for cause, change in case.cures.items()}
    everything: Dict[str, Any] = {k: v for change in case.cures.values() for k, v in change.items()}
    well = measured(case, everything) if len(after) > 1 else next(iter(after.values()), None)
    if by_command is not None:
        return Trial(case, verdict, before, {**after, verdict.cause: by_command}, well, "command")
    return Trial(case, verdict, before, after, well)


def measured(case: Case, change: Mapping[str, Any]) -> Harm:
    """The harm of a case with these knobs changed."""
    with Bench(case.transport) as bench:
        case.set_up(bench, **change)
        return bench.measure(WINDOW_S)


def _by_command(bench: Bench, subject: Subject, verdict: Judgement) -> Optional[Harm]:
    """The harm after the verdict's first remedy was run; None where it is no such command."""
    command = first_command(verdict)
    if command is None or not _is_of_the_case(command, bench, subject):
        return None
    # The lab runs as root, on machines that may have no sudo.
    line = f'sudo() {{ "$@"; }}\n{command}'
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=PATIENCE_S, check=False
    )
    return bench.measure(WINDOW_S) if done.returncode == 0 else None


def first_command(verdict: Judgement) -> Optional[str]:
    """The line of the first action, where it changes a setting."""
    actions: List[Dict[str, Any]] = ((verdict.report or {}).get("verdict") or {}).get("actions", [])
    first = actions[0] if actions else {}
    return first.get("run") if first.get("effect") == "changes" else None


def _is_of_the_case(command: str, bench: Bench, subject: Subject) -> bool:
    """Whether a command touches nothing but the case's processes and files."""
    if is_sharing_out(command, bench.pids()):
        return True
    words = [word for word in shlex.split(command) if word != "sudo"]
    own = [str(pid) for first in subject.pids for pid in bench.family(first)]
    named = any(word.rpartition("=")[2] in own for word in words)
    inside = any(word.startswith(f"{bench.folder}/") for word in words)
    ports = {name.rpartition(":")[2] for name in subject.names if ":" in name}
    return _program(words) in KEPT_TO_THE_CASE and (named or inside or not ports.isdisjoint(words))


def is_sharing_out(command: str, own: Collection[int]) -> bool:
    """Whether it sets what the case's own processes may have, and nobody else."""
    found = (re.fullmatch(pattern, command) for pattern in SHARING_OUT)
    pids = [int(pid) for each in found if each for pid in re.findall(r"\d+", each.group(1))]
    return bool(pids) and set(pids) <= set(own)


def _program(words: Sequence[str]) -> str:
    """What a line runs, or repeats until it succeeds: timeout 30 sh -c 'until PROGRAM …'."""
    if words[0] != "timeout":
        return words[0]
    return words[words.index("-c") + 1].removeprefix("until ").split()[0]


def line_of(trial: Trial) -> str:
    """One row of the table."""
    said, parts = trial.verdict.cause, trial.parts
    mark = {True: "right", False: "WRONG", None: trial.harmed}[trial.right]
    after = trial.after.get(said)
    done = (
        f"{after.says()} ({_pct(parts.get(said))}, {trial.by})" if after else "no cure of the case"
    )
    best = best_other(said, parts)
    other = f"{best[0]} {_pct(best[1])}" if best else "–"
    cells = [trial.case.name, said, trial.before.says(), done, other, mark]
    return " | ".join(cells)


def best_other(said: str, parts: Mapping[str, float]) -> Optional[Tuple[str, float]]:
    """The cure that removed most among those of other causes, and what part."""
    others = [(cause, part) for cause, part in parts.items() if cause != said]
    return max(others, key=lambda pair: pair[1]) if others else None


def _pct(part: Optional[float]) -> str:
    return "–" if part is None else f"−{100 * part:.0f} %"


HEAD = "case | verdict | harm before | after the remedy | best other cure | right?"


def summary_of(trials: Sequence[Trial]) -> str:
    """The score."""
    judged = [one for one in trials if one.right is not None]
    right = sum(bool(one.right) for one in judged)
    unharmed = len(trials) - len(judged)
    return f"{right} of {len(judged)} right; {unharmed} without harm that clients measure\n"


def document_of(trial: Trial) -> Dict[str, Any]:
    """A trial for a program."""
    return {
        "case": trial.case.name,
        "cause": trial.verdict.cause,
        "summary": trial.verdict.summary,
        "harm": trial.harmed,
        "before": trial.before.says(),
        "removed": trial.parts,
        "by": trial.by,
        "right": trial.right,
    }
