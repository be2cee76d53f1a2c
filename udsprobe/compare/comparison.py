"""The comparison of two sides: what `udsprobe compare` says, `udsprobe.compare/1`.

Every field is one of the document's; units are in the names or in `unit`.
`None` is *not measured* or *not known*. All views show this and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

SCHEMA = "udsprobe.compare/1"


@dataclass(frozen=True)
class Side:
    """What A or B is: the runs of one side, all together.

    `sources` are the file names as they were given. `percentiles_from`: `window`,
    each percentile is of a run's whole window; `intervals`, it is the one of the
    interval in the middle, because percentiles cannot be added up.
    `served_on`: transport and address of what was accepted or served.
    """

    sources: List[str]
    runs: int
    intervals: int
    start: str
    duration_s: float
    requests: Optional[int]
    percentiles_from: str
    hostname: str
    kernel: str
    cpus: int
    versions: List[str]
    targets: List[str]
    served_on: List[str]


@dataclass(frozen=True)
class Figure:
    """One figure of both sides.

    `noise` is how much nearer to 0 `delta` may be; `floor` the least difference that
    is called one. `exceeds_noise` is None when the noise is
    not known, `reason` then says why. `share_of_delta_pct`: of a stage, its part
    of the difference of the mean latency. `ratio` is b ÷ a, between `ratio_low` and
    `ratio_high` at the confidence of `noise`. `tells_after_s` and `tells_after_runs`:
    so much longer, or so many runs more, of each side would tell a difference as
    large as the one seen.
    """

    name: str
    unit: str
    a: Optional[float]
    b: Optional[float]
    delta: Optional[float]
    delta_pct: Optional[float]
    noise: Optional[float]
    noise_pct: Optional[float]
    floor: Optional[float]
    exceeds_noise: Optional[bool]
    reason: Optional[str]
    share_of_delta_pct: Optional[float] = None
    ratio: Optional[float] = None
    ratio_low: Optional[float] = None
    ratio_high: Optional[float] = None
    tells_after_s: Optional[float] = None
    tells_after_runs: Optional[int] = None


@dataclass(frozen=True)
class Noise:
    """Where the noise was taken from: `runs`, `intervals`, or None: not known."""

    taken_from: Optional[str]
    confidence_pct: float
    says: str


@dataclass(frozen=True)
class CodeShare:
    """A function's part of the CPU time of each side, by samples: itself, without what it calls.

    `delta_pct`, in percentage points, lies between `low_pct` and `high_pct` with 99 % confidence as
    far as chance in sampling goes; how runs differ otherwise is not in it.
    """

    function: str
    a_pct: float
    b_pct: float
    delta_pct: float
    low_pct: float
    high_pct: float
    exceeds_noise: bool


@dataclass(frozen=True)
class Comparison:
    """One comparison; field order is the document's order."""

    version: str
    a: Side
    b: Side
    summary: str
    different: Optional[bool]
    noise: Noise
    figures: List[Figure]
    stages: List[Figure]
    syscalls: List[Figure]
    caveats: List[str]
    app: List[Figure]
    code: List[CodeShare] = field(default_factory=list)
    schema: str = SCHEMA
