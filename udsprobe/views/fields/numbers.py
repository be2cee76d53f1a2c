"""Numbers as people read them: three significant digits, fixed widths, units that stay put.

Every number a view shows is formatted here and nowhere else. Knows no report
and no screen. `None` is not measured and reads `–`; a value that is not zero
never reads as zero.
"""

from __future__ import annotations

from typing import Dict, Hashable, Optional, Tuple

NOT_MEASURED = "–"

RATE_WIDTH = 5
DURATION_WIDTH = 6
BYTES_WIDTH = 6

_MULTIPLES = ("", "k", "M", "G", "T", "P")
_DURATIONS: Tuple[Tuple[str, float], ...] = (
    ("µs", 1.0),
    ("ms", 1e3),
    (" s", 1e6),
    (" h", 3.6e9),
)
_PER_UNIT = dict(_DURATIONS)
_UNIT_LETTERS = " µmshkMGTPB"


def significant(value: float) -> str:
    """Three significant digits in at most four characters, for 0 ≤ value < 10,000."""
    if value <= 0:
        return "0"
    if value < 0.005:
        return "<.01"
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def count(value: Optional[int], width: int = 9) -> str:
    """An exact count with thousands separators; `12.3M` only where it would not fit."""
    if value is None:
        return NOT_MEASURED
    exact = f"{value:,}"
    return exact if len(exact) <= width else _multiple(float(value))


def rate(value: Optional[float]) -> str:
    """Events per second in at most five characters: `0.33`, `310`, `4,820`, `48.2k`."""
    if value is None:
        return NOT_MEASURED
    if value < 999.5:
        return significant(value)
    return f"{value:,.0f}" if value < 9999.5 else _multiple(value)


def ratio(value: Optional[float]) -> str:
    """How many of one thing for each of another: `3.35`."""
    return rate(value)


def percentage(value: Optional[float]) -> str:
    """A percentage without its sign, of one CPU up to 9,999: `0.42`, `97.0`, `1600`."""
    return NOT_MEASURED if value is None else significant(value)


def spoken(value: float) -> str:
    """A percentage for a sentence, without its sign: `3.9`, `97`, `< 0.1`."""
    if 0 < value < 0.1:
        return "< 0.1"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def share(part: float) -> str:
    """A part of a whole, in percent without the sign: `97.0`, `0.1`, `<.1`, `100`."""
    pct = 100 * part
    if pct >= 99.95:
        return "100"
    return "<.1" if 0 < pct < 0.05 else f"{pct:.1f}"


def size(value: Optional[float]) -> str:
    """Bytes in at most six characters: `512 B`, `96.4kB`, `1.23MB` (k is 1,000)."""
    if value is None:
        return NOT_MEASURED
    scaled, multiple = value, 0
    while round(scaled) >= 1000 and multiple < len(_MULTIPLES) - 1:
        scaled, multiple = scaled / 1000, multiple + 1
    digits = f"{scaled:.0f}" if multiple == 0 and float(value).is_integer() else significant(scaled)
    return f"{digits}{_MULTIPLES[multiple] or ' '}B"


def duration(value_us: Optional[float], unit: Optional[str] = None) -> str:
    """A duration given in µs, in at most six characters: `310µs`, `2.10ms`, `1.00 s`.

    Up to 9,999 hours.

    Args:
        unit: `µs`, `ms`, ` s` or ` h`; None picks the one that reads best.
    """
    if value_us is None:
        return NOT_MEASURED
    unit = unit or duration_unit(value_us)
    return f"{significant(value_us / _PER_UNIT[unit])}{unit}"


def spaced(shown: str) -> str:
    """A number that was formatted here, for a sentence: `2.31 ms`, `1.00 s`, `512 B`."""
    digits = shown.rstrip(_UNIT_LETTERS)
    return f"{digits.strip()} {shown[len(digits) :].strip()}".strip()


def duration_unit(value_us: float, previous: Optional[str] = None) -> str:
    """The unit to show a duration in; `previous` is kept while it still reads well."""
    if previous is not None and 0.1 <= value_us / _PER_UNIT[previous] < 9999.5:
        return previous
    if value_us <= 0:
        return previous or "µs"
    for unit, us in _DURATIONS[:2]:
        if round(value_us / us) < 1000:
            return unit
    return " s" if value_us < 1e10 else " h"


def span(seconds: float) -> str:
    """How long something took, for a sentence: `1 s`, `9.98 s`, `12 min 05 s`, `3 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def _multiple(value: float) -> str:
    multiple = 0
    while round(value) >= 1000 and multiple < len(_MULTIPLES) - 1:
        value, multiple = value / 1000, multiple + 1
    return f"{significant(value)}{_MULTIPLES[multiple]}"


class SteadyUnits:
    """Remembers each place's unit, so that a value near a boundary does not flicker."""

    def __init__(self) -> None:
        self._units: Dict[Hashable, str] = {}

    def duration(self, place: Hashable, value_us: Optional[float]) -> str:
        if value_us is None:
            return NOT_MEASURED
        unit = duration_unit(value_us, self._units.get(place))
        self._units[place] = unit
        return duration(value_us, unit)
