"""Pushes metrics to an OpenTelemetry collector, every so often, by the SDK's own exporters."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import Any, Callable, Optional, Tuple
from urllib.parse import urlsplit

from udsprobe.commands.output.notices import notice
from udsprobe.errors import UsageError
from udsprobe.sample import Observation
from udsprobe.views.metrics.page import Page

PUSH_EVERY_MS_DEFAULT = 10_000
# A collector that is down must not keep a service from stopping.
LAST_PUSH_S = 5.0
FROM_ENVIRONMENT = "env"
_SCHEMES = {"http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc"}


class OtlpPusher:
    """Sends the newest page until it is closed, and once more then.

    Args:
        url: `http://`, `https://` (protobuf over HTTP), `grpc://` or `grpcs://`, or
            `env`: OTEL_EXPORTER_OTLP_ENDPOINT and its like decide. Those variables
            hold in any case for headers, certificates, timeout and compression.
        newest: the page to send.

    Raises:
        UsageError: `usage` or `no-package`.
    """

    def __init__(self, url: str, newest: Callable[[], Optional[Page]]) -> None:
        self._newest = newest
        self._every_s = _every_ms() / 1000
        self._connect, self._view = _exporter(url)
        self._closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, observation: Observation) -> None:
        """Begin; the first push is now.

        Not before privileges are given up: gRPC starts threads, each with its own.
        """
        self._exporter = self._connect()
        self._version = observation.version
        self._resource = self._view.resource(observation)
        self._thread.start()

    def close(self) -> None:
        """Send the last page and stop, after a few seconds at most."""
        self._closing.set()
        self._thread.join(LAST_PUSH_S)
        self._exporter.shutdown()

    def _run(self) -> None:
        while True:
            is_last = self._closing.is_set()
            self._push()
            if is_last:
                return
            self._closing.wait(self._every_s)

    def _push(self) -> None:
        page = self._newest()
        if page is None:
            return
        data = self._view.metrics_data(page, self._resource, self._version)
        try:
            has_failed = self._exporter.export(data).name != "SUCCESS"
        except Exception as error:  # any of three libraries': it must not end the sampling
            logging.getLogger("udsprobe").debug("push failed", exc_info=error)
            has_failed = True
        if has_failed != self._is_failing:
            self._is_failing = has_failed
            notice(
                "pushing metrics fails; retrying" if has_failed else "pushing metrics works again"
            )


def _exporter(url: str) -> Tuple[Callable[[], Any], Any]:
    protocol, endpoint, insecure = _where(url)
    # What they log is said in one line of ours.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    logging.getLogger("opentelemetry").propagate = False
    try:
        from udsprobe.views.metrics import otlp

        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc

            return partial(grpc.OTLPMetricExporter, endpoint=endpoint, insecure=insecure), otlp
        from opentelemetry.exporter.otlp.proto.http import metric_exporter as http

        return partial(http.OTLPMetricExporter, endpoint=endpoint), otlp
    except ImportError as error:
        from udsprobe.commands.output.extras import install_command

        raise UsageError(
            "no-package",
            f"--otlp needs OpenTelemetry's SDK and exporters ({error})",
            install_command("otel"),
        ) from error


def _where(url: str) -> Tuple[str, Optional[str], Optional[bool]]:
    """Protocol, endpoint and whether it is unencrypted; None is the environment's."""
    wanted = os.environ.get(
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    )
    if url == FROM_ENVIRONMENT:
        return ("grpc" if wanted == "grpc" else "http"), None, None
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(
            "usage",
            f"--otlp {url!r} is not the address of a collector",
            "give one like http://127.0.0.1:4318 or grpc://127.0.0.1:4317, or env",
        )
    if _SCHEMES[parts.scheme] == "grpc" or wanted == "grpc":
        return "grpc", parts.netloc, parts.scheme in ("grpc", "http")
    path = parts.path if parts.path.strip("/") else "/v1/metrics"
    return "http", parts._replace(path=path).geturl(), None


def _every_ms() -> int:
    text = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if not text:
        return PUSH_EVERY_MS_DEFAULT
    if not text.isascii() or not text.isdigit() or not 100 <= int(text) <= 86_400_000:
        raise UsageError(
            "usage",
            f"OTEL_METRIC_EXPORT_INTERVAL {text!r} is not an interval",
            "set it to milliseconds, 100 or more",
        )
    return int(text)
