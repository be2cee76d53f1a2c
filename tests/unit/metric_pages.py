"""Pages of metrics from samples, and what they say as plain dicts."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from tests.unit import samples
from udsprobe.model.difference import report
from udsprobe.sample import Sample
from udsprobe.views.metrics.book import MetricsBook
from udsprobe.views.metrics.page import Page


def pages(*taken: Sample, **options: int) -> Tuple[Page, ...]:
    """The page of each sample; the report is of the time since the one before."""
    book = MetricsBook(samples.START_UNIX_S, **options)
    before = (taken[0], *taken)
    observation = samples.observation()
    return tuple(
        book.page(observation, sample, report(observation, earlier, sample))
        for earlier, sample in zip(before, taken)
    )


def series(page: Page, name: str) -> Dict[Tuple[str, ...], Any]:
    """Label values → value of one metric; empty when the page does not have it."""
    found = [rows for metric, rows in page.families.items() if metric.prometheus == name]
    return dict(found[0]) if found else {}
