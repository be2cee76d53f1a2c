"""Series of full windows: they add up over windows, never fall, and say how long was looked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

from tests.unit import samples
from tests.unit.metric_pages import series
from tests.unit.test_auto_reports import full_report, unprobed, unprobed_report
from tests.unit.test_light import light, light_report
from udsprobe.auto.composing import FullWindow, composed
from udsprobe.sample import GivenUpCounts, HttpReplyCounts, Sample, UnansweredCounts
from udsprobe.views.metrics.book import MetricsBook
from udsprobe.views.metrics.page import Page

READ = ("read", "unix", "stream", "native")


def window(calls: int, seconds: int) -> Tuple[Sample, Sample]:
    """First and last sample of a window in which so many reads were made."""
    first, last = samples.busy_pair()
    none, some = (samples.call("read", durations_ns=[5_000] * count) for count in (0, calls))
    return (
        replace(first, sequence=0, calls=(none,)),
        replace(
            last,
            sequence=1,
            calls=(some,),
            monotonic_ns=first.monotonic_ns + seconds * samples.SECOND_NS,
        ),
    )


def pages(*windows: Tuple[Sample, Sample]) -> List[Page]:
    """A page behind each window; light's samples are a second apart."""
    book = MetricsBook(samples.START_UNIX_S)
    observed = samples.observation()
    told = composed(light_report(), FullWindow(full_report()))
    base, found = light(samples.busy_pair()[1], 64_000, 32_000), []
    for number, taken in enumerate(windows):
        for sample in taken:
            book.add_window_sample(observed, sample)
        at_ns = base.monotonic_ns + number * samples.SECOND_NS
        found.append(book.page(observed, replace(base, monotonic_ns=at_ns), told))
    return found


def values(found: List[Page], name: str, key: Tuple[str, ...]) -> List[Any]:
    return [series(page, name).get(key) for page in found]


def test_windows_add_up() -> None:
    found = pages(window(10, 2), window(3, 1), window(7, 4))
    assert values(found, "udsprobe_syscall_calls_total", READ) == [10, 13, 20]
    durations = values(found, "udsprobe_syscall_duration_seconds", READ)
    assert [each.count for each in durations] == [10, 13, 20]


def test_requests_without_a_reply_add_up_over_windows() -> None:
    """Light does not see them."""
    base = window(1, 1)
    none, some = (
        samples.server(),
        samples.server(given_up=GivenUpCounts(7, 7_000, 0), dropped=UnansweredCounts(2, 2_000)),
    )
    taken = replace(base[0], served_by=(none,)), replace(base[1], served_by=(some,))
    found = pages(taken, taken)
    name = "udsprobe_served_requests_unanswered_total"
    assert values(found, name, ("client",)) == [7, 14]
    assert values(found, name, ("program",)) == [2, 4]
    assert values(pages(base), name, ("client",)) == [None]


def test_so_do_those_of_the_targets_own() -> None:
    base, name = window(1, 1), "udsprobe_upstream_requests_unanswered_total"
    none, some = (
        samples.upstream(),
        samples.upstream(dropped=UnansweredCounts(7, 7_000), given_up=UnansweredCounts(2, 2_000)),
    )
    taken = replace(base[0], upstream=(none,)), replace(base[1], upstream=(some,))
    found = pages(taken, taken)
    place = ("unix", "/run/db.sock")
    assert values(found, name, (*place, "upstream")) == [7, 14]
    assert values(found, name, (*place, "target")) == [2, 4]


def test_so_do_replies_by_their_outcome() -> None:
    base = window(1, 1)
    counted = HttpReplyCounts(9, 4, 4_000, {"503": 4})
    some = replace(
        base[1],
        served_by=(samples.server(http=counted),),
        upstream=(samples.upstream(http=counted),),
    )
    taken = replace(base[0], served_by=(samples.server(),), upstream=(samples.upstream(),)), some
    found = pages(taken, taken)
    place = ("unix", "/run/db.sock")
    assert values(found, "udsprobe_served_http_replies_total", ("failed",)) == [4, 8]
    assert values(found, "udsprobe_upstream_http_replies_total", (*place, "answered")) == [5, 10]


def test_pages_within_a_window_count_nothing_twice() -> None:
    """A window that pressure keeps open is on a page for each of its samples."""
    book, observed = MetricsBook(samples.START_UNIX_S), samples.observation()
    told = composed(light_report(), FullWindow(full_report()))
    base = light(samples.busy_pair()[1], 64_000, 32_000)
    first, last = window(10, 1)
    later = replace(last, sequence=2, calls=(samples.call("read", durations_ns=[5_000] * 15),))
    found = []
    for sample in (first, last, later):
        book.add_window_sample(observed, sample)
        found.append(book.page(observed, base, told))
    found.append(book.page(observed, base, told))
    assert values(found, "udsprobe_syscall_calls_total", READ) == [0, 10, 15, 15]


def test_each_measurement_says_how_long_it_was_observed() -> None:
    found = pages(window(10, 2), window(3, 1))
    name = "udsprobe_observed_seconds_total"
    assert values(found, name, ("syscalls",)) == [2.0, 3.0]
    assert values(found, name, ("traffic",)) == [0.0, 1.0]


def test_a_page_between_windows_repeats_counters_and_no_states() -> None:
    book = MetricsBook(samples.START_UNIX_S)
    observed, told = samples.observation(), composed(light_report(), FullWindow(full_report()))
    base = light(samples.busy_pair()[1], 64_000, 32_000)
    for sample in window(10, 2):
        book.add_window_sample(observed, sample)
    open_page, shut_page = (book.page(observed, base, told) for _ in range(2))
    for page in (open_page, shut_page):
        assert series(page, "udsprobe_syscall_calls_total")[READ] == 10
    assert series(open_page, "udsprobe_threads")
    assert not series(shut_page, "udsprobe_threads")


def test_light_is_told_by_light_alone() -> None:
    plain = MetricsBook(samples.START_UNIX_S)
    observed = samples.observation()
    told = composed(light_report(), FullWindow(full_report()))
    base = light(samples.busy_pair()[1], 64_000, 32_000)
    alone = plain.page(observed, base, told)
    beside = pages(window(10, 2))[0]
    same: Dict[str, Any] = {m.prometheus: rows for m, rows in beside.families.items()}
    for metric, rows in alone.families.items():
        assert same[metric.prometheus] == rows


def test_without_windows_nothing_says_how_long() -> None:
    book = MetricsBook(samples.START_UNIX_S)
    page = book.page(samples.observation(), samples.busy_pair()[1], full_report())
    assert series(page, "udsprobe_observed_seconds_total") == {}


def test_without_light_windows_tell_what_it_would() -> None:
    """Requests, and who came to a listener: they grow with windows and stand between them."""
    book, observed = MetricsBook(samples.START_UNIX_S), samples.observation()
    told = composed(unprobed_report(), FullWindow(full_report()))
    base = unprobed(samples.busy_pair()[1])
    found = [book.page(observed, base, told)]
    for taken in (window(10, 2), window(3, 1)):
        for sample in taken:
            book.add_window_sample(observed, sample)
        found += [book.page(observed, base, told), book.page(observed, base, told)]
    assert values(found, "udsprobe_served_requests_total", ()) == [None, 1000, 1000, 2000, 2000]
    observed_s = values(found, "udsprobe_observed_seconds_total", ("served_requests",))
    assert observed_s == [None, 2.0, 2.0, 3.0, 3.0]
    assert not series(found[-1], "udsprobe_traffic_bytes_total")


def test_without_a_probe_at_a_queue_its_fill_is_that_of_now() -> None:
    """The alert on it goes on working; the maximum of a window that is over is not told as new."""
    book, observed = MetricsBook(samples.START_UNIX_S), samples.observation()
    base = unprobed(samples.busy_pair()[1])
    assert base.listeners
    listener = replace(base.listeners[0], depth_now=100, backlog_effective=127)
    base = replace(base, listeners=(listener,))
    page = book.page(observed, base, composed(unprobed_report(), FullWindow(full_report())))
    (fill,) = series(page, "udsprobe_listener_queue_fill_ratio").values()
    assert fill == 100 / 128
    assert not series(page, "udsprobe_listener_queue_peak")


def test_counting_begins_anew_when_light_comes_or_goes() -> None:
    book, observed = MetricsBook(samples.START_UNIX_S), samples.observation()
    told = composed(light_report(), FullWindow(full_report()))
    base = light(samples.busy_pair()[1], 64_000, 32_000)
    book.page(observed, base, told)
    gone = unprobed(replace(base, unix_s=base.unix_s + 60.0))
    book.begin_again(gone)
    after = composed(unprobed_report(), FullWindow(full_report()))
    page = book.page(observed, gone, after)
    assert page.started_unix_s == gone.unix_s
    assert not series(page, "udsprobe_served_requests_total")
    assert not series(page, "udsprobe_traffic_bytes_total")
    for sample in window(10, 2):
        book.add_window_sample(observed, sample)
    page = book.page(observed, gone, after)
    assert series(page, "udsprobe_served_requests_total")[()] == 1000
