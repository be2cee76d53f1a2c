"""Destinations as configurations write them: which ones stay on this host."""

from __future__ import annotations

from typing import Optional, Tuple

_LOOPBACK = ("localhost", "::1", "")


def host_and_port(address: str, default: int) -> Optional[Tuple[str, int]]:
    """`127.0.0.1:80`, `[::1]:80`, `:80` or a bare host; None when it is no such thing."""
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        return address.strip("[]"), default
    if not (port.isascii() and port.isdigit() and len(port) < 6):
        return None
    return host.strip("[]"), int(port)


def loopback_port(address: str, default: int = 80) -> Optional[int]:
    """The port, if the address means this host by its loopback; else None."""
    if "$" in address or "/" in address or "{" in address or address.startswith("unix:"):
        return None
    parts = host_and_port(address, default)
    if parts is None:
        return None
    host, port = parts
    local = host in _LOOPBACK or host.startswith("127.")
    return port if local and 0 < port < 65536 else None


def answers_on_loopback(host: Optional[str]) -> bool:
    """Whether a listener bound to `host` gets connections to the loopback."""
    return host in ("0.0.0.0", "::", "::1") or (host or "").startswith("127.")
