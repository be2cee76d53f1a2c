"""A WSGI application that says which process answered."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable


def application(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = str(os.getpid()).encode()
    headers = [("Content-Length", str(len(body))), ("Connection", "close")]
    start_response("200 OK", headers)
    return [body]
