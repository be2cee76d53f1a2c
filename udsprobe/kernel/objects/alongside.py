"""Work for another thread while this one waits for the kernel."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator

Work = Callable[[], object]


def nothing() -> None:
    """No work."""


@contextmanager
def alongside(work: Work) -> Iterator[None]:
    """Both the block and `work`, which must not raise, are done when it is left.

    The thread is gone by then: one that stayed would keep the privileges given up later.
    """
    thread = threading.Thread(target=work, name="alongside", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()
