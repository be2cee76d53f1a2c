"""Runs systems drawn by lot, and says what udsprobe's verdicts on them are worth.

The truth is by intervention: each cure is done alone and the clients' harm measured again.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from tests.scenarios import judge, neighbours
from tests.scenarios.bench import Bench, Server
from tests.scenarios.case import Subject
from tests.scenarios.cure import MORE_MIN
from tests.scenarios.harm import MOST, Harm, removed, suffering
from tests.scenarios.judge import Judgement
from tests.scenarios.neighbours import STRANGERS_SHARE_MAX
from tests.scenarios.programs import built
from tests.scenarios.systems import (
    CLIENT,
    PROXY,
    SERVER,
    SYSTEM,
    UPSTREAM,
    Cure,
    System,
    causes_seen,
    cured,
    cures,
    well,
)

SETTLE_S, WINDOW_S, ATTACHED_S = 0.3, 1.0, 3.0
REQUEST = b"request\n"
UPSTREAM_BYTES = 256
BURN = ["sh", "-c", "while :; do :; done"]
IN_GROUP = ["sh", "-c", 'echo $$ >"$0"/cgroup.procs; exec "$@"']
QUIET = ("healthy", "unknown")
# What a cure removes at least that belongs to what is wrong.
LITTLE = MOST / 2
ATTEMPTS = 2
# What nobody can judge by: udsprobe may then say that it does not know.
FEW = 20


@dataclass(frozen=True)
class Found:
    """A drawn system, tried.

    `parts`: by cure, what part of the harm it removed. `behind`: the same of the harm that is left
    where what removed most cannot be seen from where udsprobe is, and has been done.
    `strangers`: had such a part of the host's CPUs while udsprobe looked, or the clients of the
    well system were measured.
    """

    system: System
    verdict: Judgement
    ill: Harm
    well: Harm
    parts: Dict[Cure, float] = field(default_factory=dict)
    strangers: float = 0.0
    behind: Dict[Cure, float] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        return self.strangers > STRANGERS_SHARE_MAX

    @property
    def harmed(self) -> str:
        """`border` at least where nobody pauses: something is saturated then, and may be named."""
        found = suffering(self.ill, self.well)
        return "border" if found == "none" and not self.ill.paced else found

    @property
    def truths(self) -> Set[str]:
        """What a verdict may be, from where udsprobe was; empty where nothing helps."""
        if not self.ill.attempts:
            return set()
        return truths_of(self.system, self.harmed, self.parts, self.behind)

    @property
    def right(self) -> Optional[bool]:
        """None where there is no truth, or strangers had the CPUs while udsprobe looked."""
        if not self.truths:
            return None
        said = self.verdict.cause
        few = said == "unknown" and "healthy" in self.truths and self.ill.attempts < FEW
        if said in self.truths or few:
            return True
        return None if self.disturbed else False

    @property
    def truth(self) -> str:
        """One word for the table: what was said where that is right."""
        return self.verdict.cause if self.right else (sorted(self.truths) or ["undecided"])[0]


def truths_of(
    system: System, harmed: str, parts: Mapping[Cure, float], behind: Mapping[Cure, float]
) -> Set[str]:
    """What a verdict may be, from where udsprobe was; empty where nothing helps."""
    if harmed == "none":
        return {"healthy"}
    seen = [causes_seen(system, one) for one in (*best_of(parts), *best_of(behind))]
    found = {cause for causes in seen for cause in causes or {"healthy"}}
    return found | ({"healthy"} if harmed == "border" else set())


def best_of(parts: Mapping[Cure, float]) -> List[Cure]:
    """The cures that remove most, as far as two windows can tell; none that removes little."""
    most = max(parts.values(), default=0.0)
    return [one for one, part in parts.items() if part >= max(most - MORE_MIN, LITTLE)]


def attempt_in_quiet(
    system: System, duration_s: float = ATTACHED_S, recording: Optional[Path] = None
) -> Found:
    """The same, again where strangers to it had the CPUs and the verdict is another for that."""
    found = attempt(system, duration_s, recording)
    for _ in range(ATTEMPTS - 1):
        if found.right is not None or not found.disturbed:
            break
        found = attempt(system, duration_s, recording)
    return found


def attempt(
    system: System, duration_s: float = ATTACHED_S, recording: Optional[Path] = None
) -> Found:
    """Measure the ill system, ask udsprobe, and measure with every cure, and with each alone.

    Args:
        recording: what udsprobe saw is kept there.
    """
    with Bench(system.at(SYSTEM)["transport"]) as bench:
        programs = set_up(bench, system)
        before = neighbours.read(bench.family(os.getpid()))
        ill = _measure(bench)
        if recording is not None:
            recording.unlink(missing_ok=True)  # of an earlier attempt
        pids = [programs[where].pid for where in system.attach if where in programs]
        verdict = judge.judge(Subject(pids), duration_s, recording)
        after = neighbours.read(bench.family(os.getpid()))
    reference, beside = _harm_of(well(system))
    strangers = max(beside, neighbours.strangers_share(before, after))
    found = Found(system, verdict, ill, reference, {}, strangers)
    if found.harmed == "none":
        return found
    parts = _removed(system, ill, reference)
    return replace(found, parts=parts, behind=_behind(system, parts, reference))


def _removed(system: System, ill: Harm, reference: Harm) -> Dict[Cure, float]:
    return {one: removed(ill, _harm_of(cured(system, one))[0], reference) for one in cures(system)}


def _behind(system: System, parts: Mapping[Cure, float], reference: Harm) -> Dict[Cure, float]:
    """By cure: its part of what is left when the best ones are done, where none can be seen."""
    best = best_of(parts)
    if not best or len(best) == len(parts) or any(causes_seen(system, one) for one in best):
        return {}
    left = system.with_({place: value for one in best for place, value in one.change})
    ill, _ = _harm_of(left)
    return {} if suffering(ill, reference) == "none" else _removed(left, ill, reference)


def _harm_of(system: System) -> Tuple[Harm, float]:
    """What its clients account for, and what strangers had of the CPUs meanwhile."""
    with Bench(system.at(SYSTEM)["transport"]) as bench:
        set_up(bench, system)
        before = neighbours.read(bench.family(os.getpid()))
        harm = _measure(bench)
        after = neighbours.read(bench.family(os.getpid()))
    return harm, neighbours.strangers_share(before, after)


def _measure(bench: Bench) -> Harm:
    bench.measure(SETTLE_S)
    return bench.measure(WINDOW_S)


def set_up(bench: Bench, system: System) -> Dict[str, Server]:
    """Start a system's programs from the last one on, then its clients; the programs."""
    programs: Dict[str, Server] = {}
    address = ""
    for where in (UPSTREAM, SERVER, PROXY):
        if not system.has(where):
            continue
        options = _program_options(system, where, address)
        address = bench.address(where)
        knobs = system.at(where)
        if not knobs.get("gone"):
            prefix = _prefix(bench, knobs.get("cpu_pct", 0))
            argv = [*prefix, built("servers/service.c"), f"listen={address}", *options]
            programs[where] = bench.server([*argv, f"file={bench.folder / where}"], address, where)
    if system.at(SYSTEM).get("noise"):
        bench.start(BURN, "stranger")
    for clients in filter(None, (system.at(CLIENT), dict(system.others))):
        frame = f"bytes:{system.at(SYSTEM)['bytes']}"
        bench.load(address, REQUEST, frame, **{"warm": 0, **clients})
    return programs


def _program_options(system: System, where: str, upstream: str) -> List[str]:
    knobs = {k: v for k, v in system.at(where).items() if k not in ("gone", "cpu_pct")}
    size = system.at(SYSTEM)["bytes"]
    knobs["bytes"] = UPSTREAM_BYTES if where == UPSTREAM else size
    if upstream:
        relay = where == PROXY
        asked = size if relay else UPSTREAM_BYTES
        knobs.update(upstream=upstream, upstream_bytes=asked, relay=int(relay))
    return [f"{name}={value}" for name, value in knobs.items()]


def _prefix(bench: Bench, percent: int) -> List[str]:
    if not percent:
        return []
    group = bench.cpu_group(f"{bench.folder.name}-{bench.name('group')}", percent)
    return [*IN_GROUP, str(group)]


# -- what is said of them --------------------------------------------------------------------------


def line_of(found: Found) -> str:
    """One system for a person."""
    mark = {True: "ok   ", False: "WRONG", None: "?    "}[found.right]
    disturbed = (
        f" (strangers had {100 * found.strangers:.0f} % of the CPUs)" if found.disturbed else ""
    )
    true = " or ".join(sorted(found.truths)) or "undecided"
    said = f"said {found.verdict.cause}, true {true}"
    return f"{mark} {found.system.name} {said}, harm {found.harmed}{disturbed}"


def account_of(found: Found) -> str:
    """What a wrong one was made of, and what the numbers said."""
    parts = ", ".join(f"{one.name} −{100 * part:.0f} %" for one, part in found.parts.items())
    lines = [line_of(found), f"  {found.system.says()}", f"  ill: {found.ill.says()}"]
    lines += [f"  well: {found.well.says()}", f"  cures: {parts or '–'}"]
    return "\n".join([*lines, f"  it said: {found.verdict.summary}"])


def document_of(found: Found) -> Dict[str, Any]:
    """One system for a program."""
    return {
        "system": found.system.name,
        "illnesses": list(found.system.illnesses),
        "attach": list(found.system.attach),
        "parts": found.system.says(),
        "harm": found.harmed,
        "ill": found.ill.says(),
        "well": found.well.says(),
        "attempts": found.ill.attempts,
        "removed": {one.name: round(part, 3) for one, part in found.parts.items()},
        "removed_behind": {one.name: round(part, 3) for one, part in found.behind.items()},
        "true": sorted(found.truths),
        "said": found.verdict.cause,
        "summary": found.verdict.summary,
        "strangers_cpu_share": round(found.strangers, 3),
        "right": found.right,
    }


def pairs_of(founds: Sequence[Found]) -> List[Tuple[str, str]]:
    """(true, said): what is right is said to be what is true."""
    return [(one.truth, one.verdict.cause) for one in founds if one.right is not None]


def score_of(founds: Sequence[Found]) -> str:
    """One line of counts."""
    counts = Counter(one.right for one in founds)
    judged = counts[True] + counts[False]
    disturbed = sum(one.right is None and bool(one.truths) for one in founds)
    unharmed = [one for one in founds if one.harmed == "none" and one.right is not None]
    alarms = sum(one.verdict.cause not in QUIET for one in unharmed)
    share = 100 * counts[True] / judged if judged else 0.0
    return (
        f"{counts[True]} of {judged} right ({share:.0f} %); "
        f"{alarms} alarms on {len(unharmed)} without harm; not judged: {disturbed} whose CPUs "
        f"others held, {counts[None] - disturbed} that no cure helps\n"
    )
