"""One thing that is wrong or worth knowing, with what shows it and the line that changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Tuple, Union

from udsprobe.model.report import Action
from udsprobe.rules.suspects.suspect import SEVERITIES

DOCS = "docs/doctor.md#"
_PLACES_SHOWN = 5


@dataclass(frozen=True)
class Evidence:
    """One fact that a finding rests on.

    Attributes:
        what: the name of the limit, directive or field.
        value: a number, or text without contents of files other than directives that
            are known to hold no secret.
        source: where it was read: a file of /proc or /sys, `FILE:LINE`, `sock_diag`.
    """

    what: str
    value: Union[int, float, str, None]
    source: str


@dataclass(frozen=True)
class Finding:
    """A finding, with a section of its own in docs/doctor.md.

    Attributes:
        id: slug and anchor. severity: `info`, `warning` or `critical`.
        subject: what it is about: a listener, a process, `/etc/nginx/nginx.conf:12`.
        places: `FILE:LINE` of the configuration it rests on, five at most.
        places_total: how many there are.
    """

    id: str
    severity: str
    subject: str
    summary: str
    evidence: Tuple[Evidence, ...] = ()
    actions: Tuple[Action, ...] = ()
    places: Tuple[str, ...] = ()
    places_total: int = 0

    @property
    def docs(self) -> str:
        """Where the finding is explained."""
        return f"{DOCS}{self.id}"


def shown_places(places: Iterable[str]) -> Tuple[Tuple[str, ...], int]:
    """The first five different places, and how many there are."""
    distinct = tuple(dict.fromkeys(places))
    return distinct[:_PLACES_SHOWN], len(distinct)


def worst_first(findings: Iterable[Finding]) -> Tuple[Finding, ...]:
    """By severity, then in the order found."""
    return tuple(sorted(findings, key=lambda one: -SEVERITIES.index(one.severity)))


def reaches(findings: Iterable[Finding], severity: Optional[str]) -> bool:
    """Whether one is as severe as that; None is never reached."""
    if severity is None:
        return False
    least = SEVERITIES.index(severity)
    return any(SEVERITIES.index(one.severity) >= least for one in findings)
