"""`udsprobe export`: metrics of processes, for as long as they run."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Optional

import click

from udsprobe.commands.live.observing import observer_of
from udsprobe.commands.live.watching import announce, withdraw_announcement
from udsprobe.commands.options.selecting import chosen_processes, selector_options
from udsprobe.commands.options.shared import WatchOptions, pace_options, read_options
from udsprobe.commands.output.notices import notice
from udsprobe.errors import EXIT_OK, UsageError
from udsprobe.observe.ending import Ending
from udsprobe.observe.live_observer import LiveObserver
from udsprobe.views.metrics.book import MetricsBook
from udsprobe.views.metrics.page import Page
from udsprobe.views.metrics.series_budget import MAX_SERIES_DEFAULT, MAX_SERIES_LEAST

if TYPE_CHECKING:
    from udsprobe.commands.live.otlp_push import OtlpPusher
    from udsprobe.commands.live.scrape_server import ScrapeServer

BIND_DEFAULT = "127.0.0.1:9435"


class NewestPage:
    """The newest page of metrics: the sampling thread replaces it, others read it.

    Attributes:
        page: None until there is one.
    """

    def __init__(self) -> None:
        self.page: Optional[Page] = None

    def read(self) -> Optional[Page]:
        """The newest page."""
        return self.page


@click.command(
    name="export",
    short_help="Export metrics for Prometheus and OpenTelemetry.",
    epilog=(
        "Ends at Ctrl-C, at SIGTERM or when the last target exits. docs/metrics.md lists the names."
    ),
)
@selector_options
@click.option(
    "--bind",
    metavar="HOST:PORT",
    help=(
        "Serve the Prometheus format at this address; without --otlp the default is "
        f"{BIND_DEFAULT}."
    ),
)
@click.option(
    "--otlp",
    metavar="URL",
    help="Push OpenTelemetry metrics: http(s)://HOST:4318, grpc(s)://HOST:4317, or `env` to "
    "use the OTEL_EXPORTER_OTLP_… variables.",
)
@click.option(
    "--max-series",
    type=click.IntRange(min=MAX_SERIES_LEAST),
    default=MAX_SERIES_DEFAULT,
    show_default=True,
    metavar="N",
    help="At most this many time series; the others are counted under `other`.",
)
@pace_options
def command(bind: Optional[str], otlp: Optional[str], max_series: int, **given: Any) -> int:
    """Export metrics of running processes until they exit.

    \b
    sudo udsprobe export --unit nginx --bind 127.0.0.1:9435
    sudo udsprobe export --listener /run/app.sock --otlp grpc://collector:4317
    """
    options = _options_of(given)
    newest = NewestPage()
    with ExitStack() as stack:
        server = None if otlp is not None and bind is None else _server(bind, newest, stack)
        pusher = None if otlp is None else _pusher(otlp, newest)
        chosen = chosen_processes(given, follow=options.follow)
        withdraw_announcement(options)
        book = MetricsBook(time.time(), max_series)
        observer = observer_of(
            options,
            chosen,
            on_window_sample=book.add_window_sample,
            on_change=book.begin_again,
        )
        stack.callback(observer.close)
        book.began(observer.first)
        ending = stack.enter_context(Ending(options.duration_s, observer.targets_alive))
        _publish_page(observer, book, newest)
        if server is not None:
            server.start()
            notice(f"metrics at {server.url}")
        if pusher is not None:
            pusher.start(observer.observation)
            stack.callback(pusher.close)
        _sample_until_the_end(observer, book, newest, ending, options)
    return EXIT_OK


# Imported when they are used: prometheus_client, and OpenTelemetry above all, take their time.
def _server(bind: Optional[str], newest: NewestPage, stack: ExitStack) -> ScrapeServer:
    from udsprobe.commands.live.scrape_server import ScrapeServer

    server = ScrapeServer(BIND_DEFAULT if bind is None else bind, newest.read)
    stack.callback(server.close)
    return server


def _pusher(url: str, newest: NewestPage) -> OtlpPusher:
    from udsprobe.commands.live.otlp_push import OtlpPusher

    return OtlpPusher(url, newest.read)


def _sample_until_the_end(
    observer: LiveObserver,
    book: MetricsBook,
    newest: NewestPage,
    ending: Ending,
    options: WatchOptions,
) -> None:
    ending.watch(observer.alive_pids())
    if options.ready_file:
        announce(options.ready_file)
    while not ending.wait(observer.pace_s(options.interval_s)):
        _publish_page(observer, book, newest)
        ending.watch(observer.alive_pids())
    observer.stop()
    _publish_page(observer, book, newest)


def _publish_page(observer: LiveObserver, book: MetricsBook, newest: NewestPage) -> None:
    report = observer.interval()
    newest.page = book.page(observer.observation, observer.last, report)


def _options_of(given: Any) -> WatchOptions:
    if given["interval"] > 3600:
        raise UsageError("usage", "--interval is longer than an hour", "give 3600 s or less")
    return read_options(given, stays=True)
