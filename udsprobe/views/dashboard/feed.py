"""What the dashboard is fed with: pairs of reports, from whoever measures."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Tuple

from udsprobe.model.report import Report


class Moment(NamedTuple):
    """Where in a recording a frame is.

    Attributes:
        at, start, end: seconds since the epoch.
        clock, starts, ends: the same for people.
        speed: 1 is as it was; playing: whether time goes on by itself.
        findings: (when, severity) of each finding that began.
        note: what there is to say, such as why a jump led nowhere; or "".
    """

    at: float
    start: float
    end: float
    clock: str
    starts: str
    ends: str
    speed: float
    playing: bool
    findings: Tuple[Tuple[float, str], ...] = ()
    note: str = ""


class Frame(NamedTuple):
    """One picture: the last interval, for rates; and all since the start, for totals.

    Attributes:
        moment: of a replayed frame; None when it is live.
        before: after a jump, the intervals before this one, the oldest first.
        recent: the seconds that the verdict is about; None: only the interval is known.
    """

    interval: Report
    window: Report
    moment: Optional[Moment] = None
    before: Optional[Tuple[Report, ...]] = None
    recent: Optional[Report] = None

    @property
    def judged(self) -> Report:
        """What the verdict's words are about, and so the bars below them."""
        return self.recent or self.interval


class Feed(Protocol):
    """Where frames come from; called from one thread that is not the screen's."""

    def next(self) -> Optional[Frame]:
        """Block until the next frame; None when the observation has ended."""

    def close(self) -> None:
        """The user quit. Any thread may call it, also twice; a blocked `next` returns None."""


class Player(Feed, Protocol):
    """A feed whose time can be moved; each call returns at once and makes a new frame."""

    def toggle(self) -> None:
        """Play, or hold."""

    def step(self, samples: int) -> None:
        """Hold, so many samples later or (negative) earlier."""

    def skip(self, seconds: float) -> None:
        """Go so much later or earlier."""

    def faster(self, by: int) -> None:
        """The next higher (1) or lower (-1) speed."""

    def next_finding(self, direction: int) -> None:
        """Hold where the next (1) or the previous (-1) finding began."""

    def go_to(self, text: str) -> None:
        """A time as a user writes it."""
