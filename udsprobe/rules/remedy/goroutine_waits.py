"""What goroutines wait for, by the function of Go or of a library that they wait in.

Source: packages sync, time, database/sql and net/http of Go 1.20 to 1.26; runtime/chan.go.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Pattern, Sequence, Tuple

from udsprobe.model.code.frames import bare
from udsprobe.rules.remedy.row import Row, reload, restart
from udsprobe.rules.remedy.work import POOL
from udsprobe.rules.servers import GENERIC


class ParkedWait(NamedTuple):
    """A way in which goroutines, or tasks, wait.

    Attributes:
        does: in words. kind: of remedy. functions: one of them is on the stack.
        is_turn: others have what it waits for, and it is its turn when these are done.
        unless: who is in one of these does what the others wait for.
    """

    does: str
    kind: str
    functions: Pattern[str]
    is_turn: bool = False
    unless: Optional[Pattern[str]] = None

    def is_in(self, functions: Sequence[str]) -> bool:
        """Whether a stack with these functions waits so."""
        does_it = self.unless is not None and any(map(self.unless.fullmatch, functions))
        return not does_it and any(map(self.functions.fullmatch, functions))


def _in(*functions: str) -> Pattern[str]:
    return re.compile("|".join(functions))


# What a library waits with comes after the library: the first that is on the stack tells.
_WAITS = (
    ParkedWait(
        "wait for a free connection of its pool",
        "go-pool",
        _in(
            r"database/sql\.\(\*DB\)\.conn",
            r"net/http\.\(\*Transport\)\.getConn(\.\w+)*",
            r"github\.com/jackc/puddle(/v2)?\.\(\*Pool(\[.*\])?\)\.\w*[aA]cquire\w*",
            r"github\.com/redis/go-redis/v\d+/internal/pool\.\(\*ConnPool\)\.waitTurn",
            r"github\.com/gomodule/redigo/redis\.\(\*Pool\)\.waitVacantConn",
        ),
        is_turn=True,
    ),
    ParkedWait(
        "pause before they try another upstream (lb_try_interval)",
        "retry-in",
        _in(r"github\.com/caddyserver/caddy/v2/.*\.LoadBalancing\.tryAgain"),
    ),
    ParkedWait(
        "wait for a limit of its own (semaphore)",
        "limit-in",
        _in(r"golang\.org/x/sync/semaphore\.\(\*Weighted\)\.Acquire"),
        is_turn=True,
    ),
    ParkedWait(
        "wait for a limit of its own (errgroup.SetLimit)",
        "limit-in",
        _in(r"golang\.org/x/sync/errgroup\.\(\*Group\)\.Go"),
        is_turn=True,
    ),
    ParkedWait(
        "wait for what another one asks for already (singleflight)",
        "same-in",
        _in(r"golang\.org/x/sync/singleflight\.\(\*Group\)\.Do"),
        is_turn=True,
        unless=_in(r"golang\.org/x/sync/singleflight\.\(\*Group\)\.doCall"),
    ),
    ParkedWait(
        "wait for a limit of its own (rate)",
        "limit-in",
        _in(r"golang\.org/x/time/rate\.\(\*Limiter\)\.\w+", r"go\.uber\.org/ratelimit\..*"),
    ),
    ParkedWait(
        "wait for a read-write mutex",
        "lock-in",
        _in(r"sync\.\(\*RWMutex\)\.\w+", r"sync\.runtime_SemacquireRWMutexR?"),
        is_turn=True,
    ),
    ParkedWait(
        "wait for a mutex",
        "lock-in",
        _in(r"(internal/)?sync\.\(\*Mutex\)\.\w+", r"(internal/)?sync\.runtime_SemacquireMutex"),
        is_turn=True,
    ),
    ParkedWait(
        "wait for other goroutines (WaitGroup)", "channel-in", _in(r"sync\.\(\*WaitGroup\)\.\w+")
    ),
    ParkedWait("wait for a condition (sync.Cond)", "channel-in", _in(r"sync\.\(\*Cond\)\.\w+")),
    ParkedWait("sleep (time.Sleep)", "sleep-in", _in(r"time\.Sleep")),
    ParkedWait("wait for room in a channel", "room-in", _in(r"runtime\.chansend1?"), is_turn=True),
    ParkedWait("wait for a channel", "channel-in", _in(r"runtime\.(chanrecv[12]?|selectgo|block)")),
)


def goroutine_wait(stack: Sequence[str]) -> Optional[ParkedWait]:
    """What a stack waits for; None where no function of it tells.

    Args:
        stack: `function (module)`, the innermost first.
    """
    functions = [bare(named) for named in stack]
    return next((wait for wait in _WAITS if wait.is_in(functions)), None)


# What who holds a lock does meanwhile, the innermost function first; others wait.
_HOLDER_DOES = (
    ("sleeps", _in(r"time\.Sleep")),
    ("is in a system call", _in(r"(internal/runtime/)?syscall(/linux)?\..*")),
    ("waits for bytes", _in(r"internal/poll\.runtime_pollWait")),
)


def holder_does(stack: Sequence[str]) -> str:
    """What a goroutine does that holds a lock, in words: `sleeps`.

    Args:
        stack: `function (module)`, the innermost first.
    """
    functions = [bare(named) for named in stack]
    found = (does for does, known in _HOLDER_DOES if any(map(known.fullmatch, functions)))
    return next(found, "waits")


GO_POOL: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        *POOL["go"],
        restart(
            "hold a connection for less long: give it back before a request computes, sleeps or "
            "asks anybody else: {where}",
            "who has one keeps the others waiting, whether the upstream works for it or not",
        ),
    )
}
LIMIT_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "raise that limit, if what is behind it has time to spare: {where}",
            "the program lets so many through itself; the others wait there",
        ),
    )
}
ROOM_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "raise the channel's capacity where it limits how many work at once; else let what "
            "receives from it keep up: {where}",
            "a goroutine that sends waits until another one receives, or has room for it",
        ),
    )
}
SAME_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "make what is asked for there quicker, or keep its result for longer, or hand out the "
            "old one while it is made anew: {where}",
            "one goroutine does it, and all that ask for the same wait for that one's result",
        ),
    )
}
RETRY_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        reload(
            "bring the upstream back that does not answer, or take it out of that reverse_proxy; "
            "with `fail_duration 30s` (or health_uri) there Caddy leaves out one that has failed, "
            "and requests do not meet it; then reload Caddy",
            "each request that meets it waits for lb_try_interval and tries again: {where}",
        ),
    )
}
CHANNEL_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let the goroutines that it waits for be quicker, or be more of them: {where}",
            "a goroutine waits there until another one of the program is done, or sends",
        ),
    )
}
