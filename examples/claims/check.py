"""What a check is: a measurement, and the ranges that docs/claims.md gives for its figures.

Measuring and judging are apart, so that a test can judge wrong figures. A figure without a range
does not exist: what is measured can fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Tuple, Union

Value = Union[float, str]
Figures = Dict[str, Value]


@dataclass(frozen=True)
class Between:
    """A number, both ends included."""

    low: float
    high: float

    def holds(self, value: Value) -> bool:
        """Whether the page is right."""
        return not isinstance(value, str) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Is:
    """One of these values and no other."""

    values: Tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """Whether the page is right."""
        return value in self.values

    def __str__(self) -> str:
        return " or ".join(
            f"`{value}`" if isinstance(value, str) else f"{value:,}" for value in self.values
        )


Expectation = Union[Between, Is]


def exactly(*values: Value) -> Is:
    """One of these."""
    return Is(values)


@dataclass(frozen=True)
class Check:
    """says: a sentence with the figures' names in braces. expects: by the figure's name."""

    name: str
    says: str
    expects: Mapping[str, Expectation]
    measure: Callable[[], Figures]

    def said(self, figures: Figures) -> str:
        """The sentence with these figures."""
        return self.says.format_map(figures)

    def wrong(self, figures: Figures) -> List[str]:
        """What the page says otherwise, a line each; a figure that is missing, or that nobody
        expects, is wrong too."""
        lines = [
            f"{name} is {figures.get(name, 'missing')}, docs/claims.md says {expected}"
            for name, expected in self.expects.items()
            if name not in figures or not expected.holds(figures[name])
        ]
        return lines + [f"{name} has no range" for name in figures if name not in self.expects]


CHECKS: Dict[str, Check] = {}


def check(
    says: str, **expects: Expectation
) -> Callable[[Callable[[], Figures]], Callable[[], Figures]]:
    """Register a measurement under its name with dashes."""

    def register(measure: Callable[[], Figures]) -> Callable[[], Figures]:
        name = measure.__name__.replace("_", "-")
        CHECKS[name] = Check(name, says, expects, measure)
        return measure

    return register


def demanded() -> str:
    """The page's table of all ranges."""
    lines = ["| check | figure | must be |", "|---|---|---|"]
    lines += [
        f"| `{one.name}` | `{figure}` | {expected} |"
        for one in CHECKS.values()
        for figure, expected in one.expects.items()
    ]
    return "\n".join(lines) + "\n"
