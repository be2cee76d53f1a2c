"""How a place in code is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.code.frames import (
    IN_C,
    JIT,
    MODULES,
    NOT_KNOWN,
    bare,
    brief,
    is_beginning,
    is_of_c_or_std,
    is_script,
)
from udsprobe.model.report import CodePlace, Evidence
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_LARGE_SHARE_MIN
from udsprobe.rules.wording import percent


def with_place(
    root: Suspect, code: Sequence[CodePlace], fact: Evidence, actions: Sequence[Action]
) -> Suspect:
    """The cause with these places, and the first of them in its headline."""
    return replace(
        root,
        headline=f"{root.headline}: {told(code[0])}",
        evidence=(fact, *root.evidence),
        actions=tuple(actions),
        code=tuple(code),
    )


def told(place: CodePlace, name: Optional[str] = None) -> str:
    """`71 % in pbkdf2Sync ← verify (auth.js:12)`; a small part is not all there is.

    Args:
        name: of the function; None: as `named` has it.
    """
    said = f"{percent(place.share_pct / 100)} in {name or named(place)}"
    is_small = place.share_pct < 100 * CODE_LARGE_SHARE_MIN
    return f"{said}, the rest in many others" if is_small else said


def named(place: CodePlace) -> str:
    """`pbkdf2Sync ← verify (auth.js:12)`."""
    if place.function is None and place.module == JIT:
        caller = f" ← {place.own}" if place.own in place.stack[1:] else ""
        return f"code made at run time, without names{caller}"
    # The module is said of the last one only, unless it is all there is to say.
    names = [*place.stack[:1], *_caller(place)]
    if len(names) > 1 and place.function is not None and not _has_source(place):
        names[0] = brief(place.function)
    if not is_known(names[0]):
        names[0] = f"a function that is {names[0]}"
    return " ← ".join(names)


def _has_source(place: CodePlace) -> bool:
    """It is in a script, or in a source file of the program's own."""
    is_own = place.file is not None and place.own == place.stack[0]
    return is_own or (is_script(place.file) and place.file not in IN_C)


def _caller(place: CodePlace) -> Tuple[str, ...]:
    """The program's own function, or where that is the place the nearest caller that is known;
    `…` stands for those between.
    """
    outwards = place.stack[1:]
    # The C library's way to the kernel's code in the process has its name, too.
    if outwards and outwards[0] != place.stack[0] and place.function == bare(outwards[0]):
        outwards = outwards[1:]
    told_of = [each for each in outwards if is_known(each) and not _is_below_all(bare(each))]
    if place.own == place.stack[0]:
        # What a library calls is known: where in the library it does so says nothing.
        told_of = [each for each in told_of if not is_of_c_or_std(each)]
        if not told_of:
            return ()
    known = next(iter(told_of), None)
    if place.own is not None and place.own in outwards:
        known = place.own
    if known is None:
        return tuple(each for each in outwards[:1] if not _is_below_all(bare(each)))
    return (known,) if known == outwards[0] else ("…", known)


def _is_below_all(function: str) -> bool:
    return is_beginning(function) or function in MODULES


def is_known(named: str) -> bool:
    """Whether a function of a stack has a name."""
    return not named.startswith(NOT_KNOWN)
