"""What is compared: each figure with its unit, its sums, and the least difference that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Union

from udsprobe.compare import noise
from udsprobe.compare.tally import APP_TIME, STAGES, Tally
from udsprobe.model.histogram import RELATIVE_ERROR

Parts = Sequence[Tally]

SINGLE_FLOOR = 0.05
"""Two runs of one server, a minute apart, differ by this much for no cause of theirs: where its
pages and caches fell, which CPUs it got. One run of each side cannot show it."""

FLOOR = 0.02
"""Of repeated runs, and of what the protocol determines: nobody acts on less."""

PERCENTILE_FLOOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR) - 1
"""Equal durations can read this much apart, each side at another end of its slot."""

BEYOND_MIN = 10
"""Requests that must lie beyond a percentile: p99.9 of 500 is just the longest of them."""

CONTENDED_MIN = 0.2
"""Part of their busy time that threads wait for a CPU: from here on, who else runs decides how long
requests take, and how many of them one call finds. One run of each side cannot tell it apart."""

STAGE_FLOOR = 0.01
"""Of the mean latency: a stage that changed by less explains nothing."""


@dataclass(frozen=True)
class Ratio:
    """One sum ÷ another, times `scale`; `is_steady`: it does not depend on the CPUs."""

    name: str
    unit: str
    over: str
    under: str
    scale: float = 1.0
    is_steady: bool = False

    def value(self, whole: Tally) -> Optional[float]:
        over, under = whole.of(self.over), whole.of(self.under)
        return over / under * self.scale if over is not None and under else None

    def error(self, parts: Parts) -> noise.Error:
        found = noise.of_ratio(parts, lambda t: t.of(self.over), lambda t: t.of(self.under))
        return noise.Error(found.value * self.scale, found.freedom)

    def relative_error(self, parts: Parts, value: float) -> noise.Error:
        return noise.relative(self.error(parts), value)

    def floor(self, repeated: bool) -> float:
        return FLOOR if self.is_steady or repeated else SINGLE_FLOOR


@dataclass(frozen=True)
class Percentile:
    """A percentile of the served requests' latency."""

    name: str
    percentile: str
    beyond: float
    unit: str = "µs"
    is_steady: bool = False

    def value(self, whole: Tally) -> Optional[float]:
        return whole.percentiles[self.percentile]

    def error(self, parts: Parts) -> noise.Error:
        return noise.UNKNOWN

    def relative_error(self, parts: Parts, value: float) -> noise.Error:
        return noise.of_percentile(parts, self.percentile)

    def floor(self, repeated: bool) -> float:
        return PERCENTILE_FLOOR


@dataclass(frozen=True)
class Calls:
    """One system call, per request."""

    name: str
    unit: str = "calls"
    is_steady: bool = False

    def value(self, whole: Tally) -> Optional[float]:
        known = whole.requests and whole.of("syscalls") is not None
        return whole.by_syscall.get(self.name, 0.0) / whole.requests if known else None

    def error(self, parts: Parts) -> noise.Error:
        return noise.of_ratio(
            parts, lambda t: t.by_syscall.get(self.name, 0.0), lambda t: t.requests
        )

    def relative_error(self, parts: Parts, value: float) -> noise.Error:
        return noise.relative(self.error(parts), value)

    def floor(self, repeated: bool) -> float:
        return FLOOR if repeated else SINGLE_FLOOR


Quantity = Union[Ratio, Percentile, Calls]

MEAN = Ratio("latency_mean", "µs", "latency_us", "requests")
PER_REQUEST = Ratio("syscalls_per_request", "calls", "syscalls", "requests")
CPU = Ratio("cpu_per_request", "µs", "cpu_us", "requests")
RATE = Ratio("requests_per_s", "1/s", "requests", "duration_s")
MEDIAN = Percentile("latency_p50", "p50", 0.5)
NINE_TENTHS = Percentile("latency_p90", "p90", 0.1)

FIGURES: Sequence[Quantity] = (
    MEAN,
    MEDIAN,
    NINE_TENTHS,
    Percentile("latency_p99", "p99", 0.01),
    Percentile("latency_p999", "p999", 0.001),
    Ratio("accept_wait_mean", "µs", "accept_wait_us", "first_requests"),
    Ratio("reply_pauses_per_request", "µs", "reply_pauses_us", "requests"),
    RATE,
    PER_REQUEST,
    CPU,
    Ratio("user_cpu_per_request", "µs", "user_us", "requests"),
    Ratio("system_cpu_per_request", "µs", "system_us", "requests"),
    Ratio("runq_per_request", "µs", "runq_us", "requests"),
    Ratio("cpu_used", "% of one CPU", "cpu_us", "duration_s", scale=1e-4),
    Ratio("socket_bytes_per_request", "bytes", "socket_bytes", "requests", is_steady=True),
    Ratio("connections_per_request", "connections", "accepted", "requests", is_steady=True),
)

APP_FIGURES: Sequence[Ratio] = tuple(
    Ratio(f"app_{doing}", "µs", f"app_{doing}_us", "requests") for doing in APP_TIME
)

STAGE_FIGURES: Sequence[Ratio] = tuple(
    Ratio(name, "µs", f"{name}_us", "requests") for name in ("before_accept", *STAGES)
)
