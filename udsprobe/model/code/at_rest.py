"""Threads of a pool that have no task: what they wait for is no request's wait."""

from __future__ import annotations

import re
from typing import Sequence

from udsprobe.model.code.frames import JIT, Frame

# They return with a task, or without one: who is in there works on none. Of `java.util.concurrent`,
# Tomcat, Jetty 9 to 12 and JBoss (Undertow); of Apache's worker and event MPM (fdqueue.c).
_TAKES_TASK = re.compile(
    r"(java\.util\.concurrent|org\.apache\.tomcat\.util\.threads)\.ThreadPoolExecutor\.getTask"
    r"|java\.util\.concurrent\.ForkJoinPool\.awaitWork"
    r"|org\.eclipse\.jetty\.util\.thread\.(QueuedThreadPool(\$Runner)?\.idleJobPoll"
    r"|ReservedThreadExecutor\$ReservedThread\.reservedWait)"
    r"|org\.jboss\.threads\.EnhancedQueueExecutor\$PoolThreadNode\.\w+"
    r"|ap_queue_pop\w*"
)
# The task is called by the function that waits for it: of concurrent.futures, waitress, Puma.
_WORKERS = re.compile(
    r"_worker|ThreadedTaskDispatcher\.handler_thread|(block .*in )?Puma::ThreadPool#spawn_thread"
)
_WAITS = re.compile(
    r"Condition\.wait(_for)?|Queue\.get|MonitorMixin::\w+#\w+"
    r"|Thread::(ConditionVariable#wait|Mutex#(synchronize|sleep|lock)|(Sized)?Queue#pop)"
)


def has_no_task(frames: Sequence[Frame]) -> bool:
    """It sleeps until its pool has one.

    Args:
        frames: the outermost first.
    """
    return any(_TAKES_TASK.fullmatch(each.function or "") for each in frames) or _waits(frames)


def _waits(frames: Sequence[Frame]) -> bool:
    called = [each.function or "" for each in frames if each.of_script and each.module != JIT]
    while called and _WAITS.fullmatch(called[-1]):
        called.pop()
    return bool(called) and _WORKERS.fullmatch(called[-1]) is not None
