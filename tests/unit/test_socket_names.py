"""Names of sockets: as the kernel half hands them over, as people read them."""

from __future__ import annotations

import ctypes
import socket

import pytest

from udsprobe.kernel.sockets.socket_names import SocketName


class Record(ctypes.Structure):
    """`struct socket_name` of `bpf/udsprobe.h`, as BTF decodes it."""

    _fields_ = [
        ("family", ctypes.c_ubyte),
        ("length", ctypes.c_ubyte),
        ("port", ctypes.c_ushort),
        ("bytes", ctypes.c_char * 112),
    ]


def record(family: int, name: bytes, *, port: int = 0, length: int = 0) -> Record:
    head = bytes([family, length]) + port.to_bytes(2, "little")
    return Record.from_buffer_copy((head + name).ljust(ctypes.sizeof(Record), b"\0"))


def unix(name: bytes) -> SocketName:
    return SocketName.of(record(socket.AF_UNIX, name, length=len(name)))


@pytest.mark.parametrize(
    ("name", "raw", "address"),
    [
        (b"/run/app.sock\0", b"/run/app.sock", "/run/app.sock"),
        (b"/run/app.sock", b"/run/app.sock", "/run/app.sock"),
        (b"/run/app.sock\0rest", b"/run/app.sock", "/run/app.sock"),
        (b"app.sock\0", b"app.sock", "app.sock"),
        (b"/" + b"x" * 107, b"/" + b"x" * 107, "/" + "x" * 107),
        (b"/run/\xff\xfe.sock\0", b"/run/\xff\xfe.sock", "/run/\\xff\\xfe.sock"),
        ("/run/é.sock\0".encode(), "/run/é.sock".encode(), "/run/é.sock"),
        (b"/run/\x1b[2J\n.sock\0", b"/run/\x1b[2J\n.sock", "/run/\\x1b[2J\\x0a.sock"),
    ],
)
def test_a_path_ends_at_its_nul_or_at_108_bytes(name: bytes, raw: bytes, address: str) -> None:
    shown = unix(name)
    assert (shown.family, shown.raw, shown.port) == (socket.AF_UNIX, raw, 0)
    assert not shown.is_abstract
    assert shown.address() == address


@pytest.mark.parametrize("name", [b"\0app", b"\0app\0", b"\0a\0b\0\0", b"\0" + b"x" * 107, b"\0"])
def test_an_abstract_name_has_all_its_bytes(name: bytes) -> None:
    shown = unix(name)
    assert shown.raw == name
    assert shown.is_abstract
    assert shown.address().startswith("@")


def test_abstract_names_that_differ_in_a_nul_read_differently() -> None:
    names = [b"\0app", b"\0app\0", b"\0\0app", b"\0a\0pp"]
    assert len({unix(name).address() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("family", "text", "port", "address"),
    [
        (socket.AF_INET, "127.0.0.1", 80, "127.0.0.1:80"),
        (socket.AF_INET, "0.0.0.0", 65535, "0.0.0.0:65535"),
        (socket.AF_INET6, "::1", 8080, "[::1]:8080"),
        (socket.AF_INET6, "2001:db8::2", 443, "[2001:db8::2]:443"),
    ],
)
def test_an_address_and_its_port(
    family: socket.AddressFamily, text: str, port: int, address: str
) -> None:
    raw = socket.inet_pton(family, text)
    shown = SocketName.of(record(family, raw + b"\xff" * 8, port=port))
    assert (shown.raw, shown.port) == (raw, port)
    assert not shown.is_abstract
    assert shown.address() == address


@pytest.mark.parametrize("family", [0, socket.AF_NETLINK])
def test_an_unnamed_socket_has_no_address(family: int) -> None:
    assert SocketName.of(record(family, b"")).address() == ""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1:5432"),
        ("::ffff:10.1.2.3", "10.1.2.3:5432"),
        ("::1", "[::1]:5432"),
        ("64:ff9b::7f00:1", "[64:ff9b::7f00:1]:5432"),
    ],
)
def test_an_ipv4_address_of_an_ipv6_socket_is_told_as_ipv4(address: str, shown: str) -> None:
    raw = socket.inet_pton(socket.AF_INET6, address)
    assert SocketName.of(record(socket.AF_INET6, raw, port=5432)).address() == shown
