#!/usr/bin/env python3
"""What a scrape costs: the text of pages of growing size, made as the server makes it.

scripts/bench/scrape.py [--runs N]. No root. Prints one JSON document: for each page its series,
bytes, and milliseconds of CPU to make the page from a sample and the text from the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

go_on_in_own_python()

from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402

from tests.unit import samples  # noqa: E402
from udsprobe.model.difference import report  # noqa: E402
from udsprobe.sample import Sample  # noqa: E402
from udsprobe.views.metrics.book import MetricsBook  # noqa: E402
from udsprobe.views.metrics.prometheus_text import PageCollector  # noqa: E402

CALLS = ("read", "write", "recvfrom", "sendto", "recvmsg", "sendmsg", "accept4", "epoll_wait")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    many = service(listeners=500, destinations=500, targets=500)
    pages = {
        "one service": (service(listeners=2, destinations=3, targets=5), 5_000),
        "a host at the default cap": (many, 5_000),
        "10,000 listeners at the default cap": (service(10_000, 500, 500), 5_000),
        "a host at a cap of 20,000": (many, 20_000),
    }
    print(json.dumps({name: cost(*each, runs) for name, each in pages.items()}, indent=2))


def service(listeners: int, destinations: int, targets: int) -> Sample:
    """A sample with so many of each."""
    queue = samples.queue([10_000, 2_000_000], refused={"EAGAIN": 3})
    return samples.sample(
        calls=tuple(
            samples.call(name, endpoint, [1_000, 50_000], errors={"EAGAIN": 1})
            for name in CALLS
            for endpoint in (samples.UNIX, samples.TCP, samples.OTHER)
        ),
        listeners=tuple(
            samples.listener(inode=each, address=f"/run/app/{each}.sock", queue=queue)
            for each in range(listeners)
        ),
        upstream=tuple(
            samples.upstream([1_000_000], address=f"10.0.0.1:{each}")
            for each in range(destinations)
        ),
        connects=tuple(
            samples.connects([100_000], address=f"10.0.0.1:{each}") for each in range(destinations)
        ),
        targets=tuple(samples.target(pid=each + 1) for each in range(targets)),
        served=samples.served([1_000_000] * 100),
    )


def cost(sample: Sample, max_series: int, runs: int) -> Dict[str, Any]:
    observation = samples.observation()
    interval = report(observation, sample, sample)
    book = MetricsBook(sample.unix_s, max_series)
    page = book.page(observation, sample, interval)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector(lambda: page))
    return {
        "series": page.series(),
        "bytes": len(generate_latest(registry)),
        "page_ms": cpu_ms(lambda: book.page(observation, sample, interval), runs),
        "scrape_ms": cpu_ms(lambda: generate_latest(registry), runs),
    }


def cpu_ms(act: Callable[[], Any], runs: int) -> float:
    """Median CPU time of this process."""
    taken: List[float] = []
    for _ in range(runs):
        before = time.process_time_ns()
        act()
        taken.append((time.process_time_ns() - before) / 1e6)
    return round(median(taken), 2)


if __name__ == "__main__":
    main()
