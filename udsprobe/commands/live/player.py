"""A recording as a feed whose time can be moved: what the replaying dashboard is fed with."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from datetime import datetime, timezone
from queue import Empty, SimpleQueue
from typing import Callable, Optional, Tuple

from udsprobe.commands.options.moments import moment_unix_s
from udsprobe.errors import UsageError
from udsprobe.model.difference import report
from udsprobe.model.report import Report
from udsprobe.recording.reader import Recording
from udsprobe.reporting import VERDICT_WINDOW_S, Reporter
from udsprobe.sample import Sample
from udsprobe.views.dashboard.feed import Frame, Moment

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_HISTORY = 60
_REPORTS_KEPT = 512
_FRAME_S_MIN = 0.1
_GAP_INTERVALS_MAX = 3.0

Wish = Callable[[], None]


class RecordingPlayer:
    """Plays a recording from its first interval on, and holds at its end.

    What the user wishes is done in the thread that calls `next`; nothing else
    touches the recording. A place is the index of a sample, from 1: its frame
    is the interval that ends there.

    Args:
        recording: with two samples or more.
        monotonic_s: the clock that it plays by.
        begins_unix_s: holds there to begin with; None plays from the first interval on.
    """

    def __init__(
        self,
        recording: Recording,
        monotonic_s: Callable[[], float] = time.monotonic,
        begins_unix_s: Optional[float] = None,
    ) -> None:
        self._recording = recording
        self._monotonic_s = monotonic_s
        self._sequences = recording.sequences()
        self._last_place = len(self._sequences) - 1
        self._wishes: SimpleQueue[Optional[Wish]] = SimpleQueue()
        self._place, self._shown_place = 1, -1
        self._shown_at_s = 0.0
        self._playing = True
        self._speed = SPEEDS.index(1.0)
        self._note = ""
        self._reporter: Optional[Reporter] = None
        self._intervals: OrderedDict[int, Report] = OrderedDict()
        self._gap_max_s = _GAP_INTERVALS_MAX * recording.observation.interval_s
        if begins_unix_s is not None:
            self._playing = False
            self._seek(begins_unix_s)
        self._marks = tuple((each.first_unix_s, each.severity) for each in recording.findings)

    def next(self) -> Optional[Frame]:
        """The next frame when it is due, at once after a wish; None once closed."""
        if self._shown_place < 0:
            return self._frame()
        try:
            wish = self._wishes.get(timeout=self._due_in_s())
        except Empty:
            self._advance()
            return self._frame()
        while wish is not None:
            self._note = ""
            wish()
            if self._wishes.empty():
                return self._frame()
            wish = self._wishes.get()
        return None

    def close(self) -> None:
        """Let a wait in progress end."""
        self._wishes.put(None)

    def toggle(self) -> None:
        """Play or hold; at the end, play from the start."""
        self._wishes.put(self._toggle)

    def step(self, samples: int) -> None:
        """Hold, so many samples later or earlier."""
        self._wishes.put(lambda: self._hold_at(self._place + samples))

    def skip(self, seconds: float) -> None:
        """Go so much later or earlier; goes on playing if it did."""
        self._wishes.put(lambda: self._seek(self._sample(self._place).unix_s + seconds))

    def faster(self, by: int) -> None:
        """The next higher (1) or lower (-1) of `SPEEDS`."""
        self._wishes.put(lambda: self._change_speed(by))

    def next_finding(self, direction: int) -> None:
        """Hold where the next (1) or the previous (-1) finding began."""
        self._wishes.put(lambda: self._to_finding(direction))

    def go_to(self, text: str) -> None:
        """A time as a user writes it; what is no time is said in the time line."""
        self._wishes.put(lambda: self._go_to(text))

    def _toggle(self) -> None:
        self._playing = not self._playing
        if self._playing and self._place == self._last_place:
            self._move(1)

    def _hold_at(self, place: int) -> None:
        self._playing = False
        self._move(place)

    def _change_speed(self, by: int) -> None:
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + by))

    def _seek(self, unix_s: float) -> None:
        self._move(bisect_left(self._sequences, self._recording.at(unix_s)))

    def _go_to(self, text: str) -> None:
        try:
            start, end = self._recording.start_unix_s, self._recording.end_unix_s
            self._seek(moment_unix_s(text, start, end))
        except UsageError as error:
            self._note = error.what

    def _to_finding(self, direction: int) -> None:
        starts = sorted({each.first_sequence for each in self._recording.findings})
        here = self._sequences[self._place]
        if direction > 0:
            later = starts[bisect_right(starts, here) :]
            found = later[0] if later else None
        else:
            earlier = starts[: bisect_left(starts, here)]
            found = earlier[-1] if earlier else None
        if found is None:
            self._note = f"no {'later' if direction > 0 else 'earlier'} finding"
        else:
            self._hold_at(bisect_left(self._sequences, found))

    def _move(self, place: int) -> None:
        self._place = max(1, min(self._last_place, place))

    def _due_in_s(self) -> Optional[float]:
        if not self._playing:
            return None
        pace_s = max(self._gap_s(self._place + 1) / SPEEDS[self._speed], _FRAME_S_MIN)
        return max(0.0, self._shown_at_s + pace_s - self._monotonic_s())

    def _advance(self) -> None:
        left_s = (self._monotonic_s() - self._shown_at_s) * SPEEDS[self._speed]
        self._place += 1
        left_s -= self._gap_s(self._place)
        while self._place < self._last_place and self._gap_s(self._place + 1) <= left_s:
            self._place += 1
            left_s -= self._gap_s(self._place)

    def _gap_s(self, place: int) -> float:
        """From the sample before; what was dropped in between is not waited for."""
        if place > self._last_place:
            return 0.0
        gap_s = self._sample(place).unix_s - self._sample(place - 1).unix_s
        return max(0.0, min(gap_s, self._gap_max_s))

    def _sample(self, place: int) -> Sample:
        return self._recording.sample(self._sequences[place])

    def _frame(self) -> Frame:
        place, before = self._place, None
        if self._reporter is None or place not in (self._shown_place, self._shown_place + 1):
            before = self._before(place) if self._shown_place >= 0 else None
            self._reporter = None
        if self._reporter is None or place == self._shown_place:
            self._reporter = self._reporter_before(place)
        interval = self._reporter.interval(self._sample(place))
        if place == self._shown_place:
            before = self._before(place)
        if place == self._last_place:
            self._playing = False
        self._shown_place, self._shown_at_s = place, self._monotonic_s()
        return Frame(
            interval, self._reporter.window(), self._moment(place), before, self._reporter.recent
        )

    def _reporter_before(self, place: int) -> Reporter:
        """As it was when it had seen all samples before this place."""
        recording = self._recording
        reporter = Reporter(recording.observation, self._sample(0), recording.slo_us)
        horizon_ns = self._sample(place).monotonic_ns - int(2 * VERDICT_WINDOW_S * 1e9)
        oldest = place - 1
        while oldest > 1 and self._sample(oldest).monotonic_ns > horizon_ns:
            oldest -= 1
        for each in range(max(1, oldest), place):
            reporter.add(self._sample(each))
        return reporter

    def _before(self, place: int) -> Tuple[Report, ...]:
        return tuple(self._interval(each) for each in range(max(1, place - _HISTORY), place))

    def _interval(self, place: int) -> Report:
        found = self._intervals.pop(place, None)
        if found is None:
            samples = self._sample(place - 1), self._sample(place)
            found = report(self._recording.observation, *samples)
        self._intervals[place] = found
        if len(self._intervals) > _REPORTS_KEPT:
            self._intervals.popitem(last=False)
        return found

    def _moment(self, place: int) -> Moment:
        recording, at = self._recording, self._sample(place).unix_s
        return Moment(
            at=at,
            start=recording.start_unix_s,
            end=recording.end_unix_s,
            clock=_clock(at),
            starts=_clock(recording.start_unix_s),
            ends=_clock(recording.end_unix_s),
            speed=SPEEDS[self._speed],
            playing=self._playing,
            findings=self._marks,
            note=self._note,
        )


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, tz=timezone.utc).strftime("%H:%M:%S")
