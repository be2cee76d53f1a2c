"""What the screen remembers between frames: order of rows, filter, history, units."""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, Hashable, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.coverage import observed_s
from udsprobe.model.report import Connect, Connection, Listener, Report, Syscall
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.fields import cells, numbers

HISTORY_FRAMES = 600
_SETTLING_FRAMES = 3
"""Rows find their order in the first frames, then keep their place."""

SortKey = Callable[[Syscall], float]
SORTS: Tuple[Tuple[str, SortKey], ...] = (
    ("calls", lambda call: call.calls),
    ("errors", cells.failed),
    ("p99", lambda call: call.latency_us.p99 or 0.0),
    ("cpu", lambda call: call.cpu_us or 0.0),
    ("bytes", lambda call: call.bytes),
)
"""Orders of the system-call table, most first; of the whole window, so that they are calm."""

HISTORIES = ("rate", "p50", "p99", "calls/request", "errors")


class ViewState:
    """Everything the user chose and every frame left behind; no widget, no report kept."""

    def __init__(self) -> None:
        self.sort = 0
        self.filter = ""
        self.filtered_panel = "system calls"
        self.units = numbers.SteadyUnits()
        self.frames = 0
        self.history: Dict[str, Deque[Optional[float]]] = {
            name: deque(maxlen=HISTORY_FRAMES) for name in HISTORIES
        }
        self.shown: Mapping[str, Sequence[Optional[float]]] = self.history
        self._depths: Dict[Hashable, Deque[Optional[int]]] = {}
        self.shown_depths: Mapping[Hashable, Sequence[Optional[int]]] = self._depths
        self._destinations: List[Hashable] = []
        self._connections: List[Hashable] = []
        self._order: List[cells.SyscallKey] = []
        self._peaks: Dict[Hashable, int] = {}

    @property
    def sorted_by(self) -> str:
        return SORTS[self.sort][0]

    def freeze(self) -> None:
        """Keep showing the history as it is now; `take` goes on."""
        self.shown = {name: tuple(values) for name, values in self.history.items()}
        self.shown_depths = {key: tuple(values) for key, values in self._depths.items()}

    def thaw(self) -> None:
        self.shown = self.history
        self.shown_depths = self._depths

    def take(self, frame: Frame) -> None:
        """Remember what later frames are compared with."""
        self.frames += 1
        if frame.before is not None:
            self._rewind(frame.before)
        self._remember(frame.interval)
        self._take_connects(frame.window.connects or [])
        self._take_connections(frame.window.connections or [])
        self._take_calls(frame.window.syscalls or [])

    def _take_calls(self, calls: Sequence[Syscall]) -> None:
        if self.frames <= _SETTLING_FRAMES:
            self._order = self._ranked(calls)
        else:
            known = set(self._order)
            self._order += [key for key in self._ranked(calls) if key not in known]

    def _rewind(self, before: Sequence[Report]) -> None:
        """Another time begins: what was remembered is not what led to it."""
        for values in self.history.values():
            values.clear()
        self._depths.clear()
        self._peaks.clear()
        for interval in before:
            self._remember(interval)

    def _remember(self, interval: Report) -> None:
        for name, value in _moments(interval).items():
            self.history[name].append(value)
        self._take_listeners(interval.listeners or [])

    def _take_listeners(self, listeners: Sequence[Listener]) -> None:
        seen = set()
        for listener in listeners:
            key, depth = listener_key(listener), listener.depth
            seen.add(key)
            most = depth.now if depth.max is None else depth.max
            if key not in self._depths:
                self._depths[key] = deque(maxlen=HISTORY_FRAMES)
            self._depths[key].append(most)
            if depth.now is not None:
                self._peaks[key] = max(depth.now, self._peaks.get(key, 0))
        for key in [key for key in self._depths if key not in seen]:
            del self._depths[key]

    def _take_connects(self, connects: Sequence[Connect]) -> None:
        ranked = [connect_key(one) for one in cells.by_trouble(connects)]
        known = set(self._destinations)
        self._destinations += [key for key in ranked if key not in known]

    def _take_connections(self, connections: Sequence[Connection]) -> None:
        present = [key for key, _ in connection_keys(connections)]
        known = set(self._connections)
        self._connections = [key for key in self._connections if key in set(present)]
        self._connections += [key for key in present if key not in known]

    def ordered_connects(self, connects: Sequence[Connect]) -> List[Connect]:
        """Destinations that fail first; otherwise each keeps its place."""
        place = {key: index for index, key in enumerate(self._destinations)}
        return sorted(
            connects,
            key=lambda one: (
                not cells.connect_failed(one),
                place.get(connect_key(one), len(place)),
            ),
        )

    def ordered_connections(self, rows: Sequence[Connection]) -> List[Tuple[Hashable, Connection]]:
        """With a key each: those whose peer takes nothing first, otherwise each in its place."""
        keyed = connection_keys(rows)
        place = {key: index for index, key in enumerate(self._connections)}
        return sorted(keyed, key=lambda one: (not one[1].stalled_us, place.get(one[0], len(place))))

    def depths(self, listener: Listener) -> Sequence[Optional[int]]:
        """The high-water mark of each interval, the newest last."""
        return tuple(self.shown_depths.get(listener_key(listener), ()))

    def next_sort(self, calls: Sequence[Syscall]) -> None:
        self.sort = (self.sort + 1) % len(SORTS)
        self._order = self._ranked(calls)

    def ordered(self, calls: Sequence[Syscall]) -> List[Syscall]:
        """`calls` in the order the rows had before."""
        place = {key: index for index, key in enumerate(self._order)}
        return sorted(calls, key=lambda call: place.get(cells.syscall_key(call), len(place)))

    def peak(self, listener: Listener) -> Optional[int]:
        """The deepest queue any frame showed: no high-water mark, but a floor of it."""
        return self._peaks.get(listener_key(listener))

    def passes(self, panel: str, text: str) -> bool:
        """Whether the filter lets a row of `panel` with this text through."""
        return panel != self.filtered_panel or self.filter.casefold() in text.casefold()

    def _ranked(self, calls: Sequence[Syscall]) -> List[cells.SyscallKey]:
        most = SORTS[self.sort][1]
        ranked = sorted(calls, key=lambda call: (-most(call), cells.syscall_key(call)))
        return [cells.syscall_key(call) for call in ranked]


def listener_key(listener: Listener) -> Hashable:
    return listener.transport, listener.address, listener.netns, listener.inode


def group_key(listener: Listener) -> Hashable:
    """Of the line above listeners that share an address."""
    return "group", listener.transport, listener.address, listener.netns


def connect_key(connect: Connect) -> Hashable:
    return "connect", connect.transport, connect.address


def connection_keys(rows: Sequence[Connection]) -> List[Tuple[Hashable, Connection]]:
    """Each row with what tells it from the others; of equal ones, the how-manieth it is."""
    times: Dict[Hashable, int] = {}
    keyed: List[Tuple[Hashable, Connection]] = []
    for row in rows:
        end = None if row.peer is None else (row.peer.pid, row.peer.address)
        ends = (row.transport, row.local, end, row.pid, row.role)
        times[ends] = times.get(ends, 0) + 1
        keyed.append((("connection", ends, times[ends]), row))
    return keyed


def _moments(report: Report) -> Dict[str, Optional[float]]:
    served = report.requests.served
    per_request = report.requests.syscalls_per_request
    latency = None if served is None else served.latency_us
    calls = report.syscalls
    seconds = observed_s(report, "syscalls")
    return {
        "rate": None if served is None else served.rate_per_s,
        "p50": None if latency is None else latency.p50,
        "p99": None if latency is None else latency.p99,
        "calls/request": None if per_request is None else per_request.total,
        "errors": None
        if calls is None
        else cells.per_second(sum(cells.failed(call) for call in calls), seconds),
    }
