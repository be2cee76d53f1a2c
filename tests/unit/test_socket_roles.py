"""Which open sockets were accepted by a listener."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from udsprobe.kernel.sockets.socket_roles import (
    TCP_ESTABLISHED,
    TCP_LISTEN,
    SocketRecord,
    served_sockets,
)

UNIX = SocketRecord(
    sk=1,
    inode=11,
    unix_address=0xF00,
    tgid=7,
    fd=3,
    netns=1,
    local_port=0,
    endpoint=1,
    state=TCP_ESTABLISHED,
)
UNIX_LISTENER = replace(UNIX, sk=2, inode=12, state=TCP_LISTEN)
TCP = replace(UNIX, sk=3, inode=13, unix_address=0, local_port=8080, endpoint=4)
TCP_LISTENER = replace(TCP, sk=4, inode=14, state=TCP_LISTEN)


def test_accepted_unix_and_tcp_are_served() -> None:
    assert served_sockets([UNIX, UNIX_LISTENER, TCP, TCP_LISTENER]) == [UNIX, TCP]


def test_the_listener_may_be_somebody_else_s() -> None:
    assert served_sockets([UNIX, replace(UNIX_LISTENER, tgid=8)]) == [UNIX]


def test_without_a_listener_nothing_is_served() -> None:
    assert served_sockets([UNIX, TCP]) == []


def test_a_listener_serves_only_its_own_address() -> None:
    other = replace(UNIX, sk=9, unix_address=0xBAD)
    assert served_sockets([other, UNIX_LISTENER]) == []
    other = replace(TCP, sk=9, local_port=8081)
    assert served_sockets([other, TCP_LISTENER]) == []


def test_the_same_port_of_another_namespace_is_another_address() -> None:
    assert served_sockets([replace(TCP, netns=2), TCP_LISTENER]) == []


def test_unnamed_sockets_match_nothing() -> None:
    # A socketpair: no address, established; and a listener bound to nothing at all.
    unnamed = replace(UNIX, unix_address=0)
    assert served_sockets([unnamed, replace(UNIX_LISTENER, unix_address=0)]) == []


def test_a_unix_address_is_no_port() -> None:
    unix = replace(UNIX_LISTENER, unix_address=8080)
    assert served_sockets([TCP, unix]) == []


def test_a_socket_that_several_descriptors_name_is_one() -> None:
    shared = [replace(UNIX, tgid=pid, fd=fd) for pid in (7, 8) for fd in (3, 4)]
    assert [one.sk for one in served_sockets([*shared, UNIX_LISTENER])] == [1]


def test_from_the_kernels_record() -> None:
    fields = {name: number for number, name in enumerate(SocketRecord.__dataclass_fields__)}
    assert SocketRecord.of(SimpleNamespace(**fields)) == SocketRecord(*range(10))


RECORDS = st.builds(
    SocketRecord,
    sk=st.integers(1, 5),
    inode=st.just(1),
    unix_address=st.integers(0, 2),
    tgid=st.just(1),
    fd=st.just(1),
    netns=st.integers(0, 1),
    local_port=st.integers(0, 2),
    endpoint=st.just(1),
    state=st.sampled_from([TCP_ESTABLISHED, TCP_LISTEN, 7]),
)


@given(st.lists(RECORDS, max_size=12))
def test_every_served_socket_is_established_and_has_a_listener(records: list[SocketRecord]) -> None:
    served = served_sockets(records)
    keys = {one.address_key() for one in records if one.state == TCP_LISTEN} - {(0, 0)}
    assert all(one.state == TCP_ESTABLISHED and one.address_key() in keys for one in served)
    assert len({one.sk for one in served}) == len(served)
    expected = {
        one.sk for one in records if one.state == TCP_ESTABLISHED and one.address_key() in keys
    }
    assert {one.sk for one in served} == expected


@given(st.lists(RECORDS, max_size=12), st.randoms())
def test_order_does_not_matter(records: list[SocketRecord], random: st.random.Random) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    ids = {one.sk for one in served_sockets(records)}
    assert {one.sk for one in served_sockets(shuffled)} == ids
