"""What a case is: a real server, its load, one planted illness, and the cause that is true of it.

Cases are functions in `tests/scenarios/cases/`, one module for each cause. Knows nothing of how
they are run or judged.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Tuple

from tests.scenarios.knobs import Change, cures_of
from udsprobe.rules.causes import CAUSES as _CAUSES

UNIX = "unix"
TCP = "tcp"
BOTH = (UNIX, TCP)

CAUSES = tuple(_CAUSES)


@dataclass(frozen=True)
class Subject:
    """What is observed, once the load is warm.

    `names`: texts of which each must be in the verdict's words (subject, summary, evidence or
    actions) if it knows what the cause is about: an address, an errno, a process.
    """

    pids: List[int]
    names: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """`set_up` starts everything on a bench and returns when the load is warm.

    Its parameters after the bench are knobs (`knobs.py`). `quick` cases are the subset that runs
    with the tests.
    """

    name: str
    cause: str
    transport: str
    server: str
    story: str
    needs: Tuple[str, ...]
    quick: bool
    set_up: Callable[..., Subject]

    @property
    def cures(self) -> Dict[str, Change]:
        """By cause: the changed knobs with which `set_up` makes it well."""
        return cures_of(self.set_up)


_cases: List[Case] = []


def case(
    server: str,
    transports: Sequence[str] = (UNIX,),
    needs: Sequence[str] = (),
    quick: str = "",
) -> Callable[[Callable[..., Subject]], Callable[..., Subject]]:
    """Register a function as a case for each of its transports.

    The cause is the name of its module, the story its docstring.

    Args:
        server: the kind of server, for the table.
        needs: programs that must be installed.
        quick: the transport with which it runs among the tests.
    """

    def register(function: Callable[..., Subject]) -> Callable[..., Subject]:
        cause = function.__module__.rpartition(".")[2].replace("_", "-")
        assert cause in CAUSES, function.__module__
        for transport in transports:
            suffix = f"-{transport}" if len(transports) > 1 else ""
            name = function.__name__.replace("_", "-") + suffix
            story = " ".join((function.__doc__ or "").split())
            _cases.append(
                Case(
                    f"{cause}/{name}",
                    cause,
                    transport,
                    server,
                    story,
                    tuple(needs),
                    quick == transport,
                    function,
                )
            )
        return function

    return register


def all_cases() -> List[Case]:
    """Every case of `tests/scenarios/cases/`, in the order of the contract's causes."""
    for path in sorted((Path(__file__).parent / "cases").glob("*.py")):
        importlib.import_module(f"tests.scenarios.cases.{path.stem}")
    return sorted(_cases, key=lambda one: CAUSES.index(one.cause))


def chosen(cases: Sequence[Case], patterns: Sequence[str]) -> List[Case]:
    """Those whose name, cause or server fits a pattern (`node*`, `*unix`); all for none."""
    if not patterns:
        return list(cases)
    return [one for one in cases if any(_fits(one, pattern) for pattern in patterns)]


def _fits(one: Case, pattern: str) -> bool:
    words = [one.name, one.name.partition("/")[2], one.cause, one.server, one.server.lower()]
    return any(fnmatch(word, pattern) for word in words)
