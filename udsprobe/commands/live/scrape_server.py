"""Serves metrics to whoever scrapes them, over HTTP.

The application is prometheus_client's, the server the standard library's; a scrape shows the
newest sample and takes none.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from contextlib import suppress
from typing import Any, Callable, Optional, Tuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from udsprobe.errors import UsageError
from udsprobe.views.metrics.page import Page

ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})"
)
SLOW_CLIENT_S = 10.0
# Whether it is to end: it is woken up for that, so each look is one for nothing.
LOOKS_EVERY_S = 3600.0


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # HTTPServer would ask the name service who we are.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or was too slow, is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SLOW_CLIENT_S

    def log_message(self, format: str, *arguments: Any) -> None:
        """One line a scrape would fill any log."""


class ScrapeServer:
    """Listens from the start, answers from `start` on.

    Args:
        address: `HOST:PORT` or `[V6]:PORT`; without a host, every address.
        newest: the page to show.

    Raises:
        UsageError: `usage`, `no-package` or `cannot-bind`.
    """

    def __init__(self, address: str, newest: Callable[[], Optional[Page]]) -> None:
        app = _application(newest)
        host, port = _host_and_port(address)
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = kind((host, port), _Handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                "cannot-bind",
                f"cannot listen on {address}: {reason}",
                "give --bind an address of this host and a free port",
            ) from error
        self._server.set_app(app)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOKS_EVERY_S,), daemon=True
        )

    @property
    def url(self) -> str:
        """Where to scrape."""
        host, port = self._server.server_address[:2]
        return (
            f"http://[{host!s}]:{port}/metrics"
            if ":" in str(host)
            else (f"http://{host!s}:{port}/metrics")
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            ending = threading.Thread(target=self._server.shutdown)
            ending.start()
            # Wakes who polls it, however often, until that sees that it is to end.
            with suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            ending.join()
        self._server.server_close()


def _application(newest: Callable[[], Optional[Page]]) -> Any:
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app

        from udsprobe.views.metrics.prometheus_text import PageCollector
    except ImportError as error:
        from udsprobe.commands.output.extras import install_command

        raise UsageError(
            "no-package",
            f"--bind needs the package prometheus-client ({error})",
            install_command("export"),
        ) from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector(newest))
    # Compressing costs more time than the bytes do on a network of hosts that are observed.
    return make_wsgi_app(registry, disable_compression=True)


def _host_and_port(address: str) -> Tuple[str, int]:
    match = ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(
            "usage", f"--bind {address!r} is not an address", "give one like 127.0.0.1:9435"
        )
    return match["v6"] or match["host"] or "", int(match["port"])
