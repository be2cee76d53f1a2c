"""udsprobe attached to an example's processes for as long as a bounded load takes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Sequence

from examples.frame.observing import Observation
from tests.kernel.tool import Attached


@contextmanager
def attached(
    pids: Sequence[int], folder: Path, observed: bool = True
) -> Iterator[List[Observation]]:
    """Attach, and put what was seen into the list that is yielded, when the block is left.

    Every probe is live when the block begins, so that a load of N requests inside it is seen
    as N requests. The processes must live until its end.

    Args:
        folder: where the report may be.
        observed: False leaves the list empty: the same load without udsprobe.
    """
    found: List[Observation] = []
    if not observed:
        yield found
        return
    selectors = [word for pid in pids for word in ("--pid", str(pid))]
    with Attached(selectors, folder) as watch:
        yield found
    found.append(Observation(watch.report))
