"""Which function a cause is in, where stacks were taken."""

from __future__ import annotations

from udsprobe.model.report import Report
from udsprobe.rules.code.asking import asking
from udsprobe.rules.code.asleep import asleep, sleeps_again
from udsprobe.rules.code.between_asks import with_asks
from udsprobe.rules.code.held import held_elsewhere
from udsprobe.rules.code.parked import left_waiting
from udsprobe.rules.code.running import running
from udsprobe.rules.code.still import still_asking, still_asleep
from udsprobe.rules.harm import STUCK
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.turned_away.given_up import is_idle_beside


def with_code(root: Suspect, report: Report) -> Suspect:
    """The cause with its functions, and the first of them in its headline."""
    if root.cause == "app-cpu":
        return with_asks(running(root, report), root.headline, report)
    goes_on = root.harm is not None and root.harm.kind == STUCK
    if root.cause == "upstream-wait":
        if not goes_on:
            return asking(root, report)
        return still_asleep(root, report) or still_asking(root, report) or root
    if root.cause != "app-blocked":
        return root
    if goes_on:
        found = sleeps_again(root, report) or still_asleep(root, report)
        return found or left_waiting(root, report)
    if is_idle_beside(root, report):
        return _or_held(left_waiting(root, report), report)
    return _or_held(asleep(root, report), report)


def _or_held(found: Suspect, report: Report) -> Suspect:
    """Where no function of the program is known to keep requests waiting, one may keep threads."""
    is_known = any(each.own is not None for each in found.code[:1])
    return found if is_known else held_elsewhere(found, report)
