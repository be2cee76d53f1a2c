"""What a check is: a claim's name, and a function that measures and says what is true here."""

from __future__ import annotations

from typing import Callable, Dict

Measure = Callable[[], str]
CHECKS: Dict[str, Measure] = {}


def check(function: Measure) -> Measure:
    """Register a check under its name with dashes. It asserts what docs/claims.md says."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function
