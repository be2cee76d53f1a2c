"""What `--listener` names: parses it, and finds it among listening sockets.

Knows address syntax and which listener a client of an address would reach.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Sequence, Set, Tuple

from udsprobe.errors import UsageError
from udsprobe.kernel.proc.procfs import same_file
from udsprobe.kernel.sockets.sock_diag import ListeningSocket, as_ipv4
from udsprobe.printable import printable, raw_name

_WILDCARDS = ("0.0.0.0", "::")
_HOSTS: Dict[str, Tuple[str, ...]] = {"": (), "*": _WILDCARDS, "localhost": ("127.0.0.1", "::1")}
_Test = Callable[[ListeningSocket], bool]


@dataclass(frozen=True)
class Wanted:
    """A listener to find.

    Attributes:
        shown: as the user wrote it, escaped.
        preferences: tests, best first; the first that any socket passes decides.
    """

    shown: str
    preferences: Sequence[_Test]

    def among(self, sockets: Iterable[ListeningSocket]) -> Set[int]:
        """Inodes of the sockets that are meant."""
        candidates = tuple(sockets)
        for fits in self.preferences:
            found = {one.inode for one in candidates if fits(one)}
            if found:
                return found
        return set()


def parse_listener(text: str) -> Wanted:
    """`PATH`, `@abstract`, `PORT`, `HOST:PORT`, `[V6]:PORT`, `*:PORT`.

    Addresses as udsprobe prints them are understood, escapes included.

    Raises:
        UsageError: it is none of these.
    """
    shown = printable(os.fsencode(text))
    host, colon, port = text.rpartition(":")
    if text.startswith("@") and len(text) > 1:
        return Wanted(shown, _unix(text))
    if "/" in text:
        return Wanted(shown, _unix(text))
    if text.isascii() and text.isdigit():
        return Wanted(shown, _tcp(shown, (), _port(text, shown)))
    if colon and port.isascii() and port.isdigit():
        return Wanted(shown, _tcp(shown, _hosts(host, shown), _port(port, shown)))
    if colon or not text.strip() or text == "@":
        raise _malformed(shown)
    return Wanted(shown, _unix(text))


def _unix(text: str) -> Sequence[_Test]:
    """Tests for a name as it was typed, then for the name that udsprobe prints so."""
    at = 1 if text.startswith("@") else 0
    lead = b"\0" if at else b""
    names = dict.fromkeys(lead + read(text[at:]) for read in (os.fsencode, raw_name))
    # The file first: through a symbolic link, or bound by a relative name; and
    # of two listeners by one name the one whose file was unlinked is not it.
    files = [] if at else [_leads_there(name) for name in names]
    return [*files, *map(_is_named, names)]


def _leads_there(name: bytes) -> _Test:
    return lambda one: one.unix_file is not None and same_file(name, *one.unix_file)


def _is_named(name: bytes) -> _Test:
    return lambda one: one.transport == "unix" and one.unix_name == name


def _tcp(address: str, hosts: Tuple[str, ...], port: int) -> Sequence[_Test]:
    """Tests for a port at one of `hosts`; no host means any."""

    def is_printed_so(one: ListeningSocket) -> bool:
        return one.transport == "tcp" and one.address == address

    def is_bound_there(one: ListeningSocket) -> bool:
        local = one.tcp_local
        return local is not None and local[1] == port and (not hosts or as_ipv4(local[0]) in hosts)

    def serves_any_host(one: ListeningSocket) -> bool:
        local = one.tcp_local
        if local is None or local[1] != port:
            return False
        return _covers(as_ipv4(local[0]), one.address, hosts)

    return (is_printed_so, is_bound_there, serves_any_host)


def _covers(bound: str, address: str, hosts: Tuple[str, ...]) -> bool:
    """Whether a wildcard listener gets what clients send to one of `hosts`."""
    if bound not in _WILDCARDS:
        return False
    both_families = address.startswith("*")
    return both_families or any((":" in bound) == (":" in host) for host in hosts)


def _hosts(text: str, shown: str) -> Tuple[str, ...]:
    bare = text.partition("%")[0]
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    if bare in _HOSTS:
        return _HOSTS[bare]
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return (as_ipv4(socket.inet_ntop(family, socket.inet_pton(family, bare))),)
    except (OSError, ValueError):
        raise _malformed(shown) from None


def _port(digits: str, shown: str) -> int:
    if len(digits) > 5 or not 0 < int(digits) < 65536:
        raise _malformed(shown)
    return int(digits)


def _malformed(shown: str) -> UsageError:
    return UsageError(
        "usage",
        f"--listener `{shown}` is not an address",
        "give a path, @abstract, PORT, or IP:PORT",
    )
