"""One possible cause, with what speaks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Action, CodeKind, CodePlace, Evidence

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES = (INFO, WARNING, CRITICAL)
DROPPED, TRACED, LOGINS = "dropped", "traced", "logins"
"""Kinds that other rules ask for: two of `app-blocked`; `connection-churn` whose logins are what
requests wait for."""


@dataclass(frozen=True)
class Suspect:
    """A cause that the numbers point to.

    Attributes:
        cause: of the contract, `app-cpu`.
        name: of the finding; tells apart two of one cause.
        kind: `DROPPED`, `TRACED` or `LOGINS` where it is one of those.
        is_pressure: somebody suffers; otherwise it is only worth knowing.
        share_pct: of request time, or of the connections or calls concerned.
        subject: what it is about: a listener, a peer, a thread.
        headline: the cause in one clause, for a human.
        seen: how many requests, connections or calls it rests on.
        overloads: the queue is full, or connections wait, because of this one.
        pids: of the service it is about; empty for all targets.
        waits_for: of the processes whose answers it waits for.
        harm: who is turned away or gets no answer; None: slow requests at most.
        near: its lowest figure, as a part of that one's limit; None where it is not told here.
        refuses: the program turns connections away, or lets none in, by itself, whatever keeps
            it busy.
        code: the functions it is in, where stacks were taken; code_kinds: the kinds of code.
    """

    cause: str
    name: str
    severity: str
    is_pressure: bool
    share_pct: float
    subject: Optional[str]
    headline: str
    evidence: Tuple[Evidence, ...] = ()
    actions: Tuple[Action, ...] = ()
    seen: int = 0
    overloads: bool = False
    pids: FrozenSet[int] = frozenset()
    waits_for: FrozenSet[int] = frozenset()
    harm: Optional[Harm] = None
    near: Optional[float] = None
    refuses: bool = False
    code: Tuple[CodePlace, ...] = ()
    code_kinds: Tuple[CodeKind, ...] = ()
    kind: str = ""
