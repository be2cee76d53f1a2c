"""Bodies of recordings: any columns come back equal, and what is no body is refused."""

from __future__ import annotations

import lzma
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Dict, List, Tuple

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import bodies
from udsprobe.recording.bodies.body import Packing, begins_anew, is_block, pack, unpack, unpacked
from udsprobe.recording.bodies.columns import ABSENT, Columns
from udsprobe.recording.bodies.limits import CHANGES_MAX, Limits

SAMPLES = 5
NODES = [[0, "a"], [0, "b"], [1, 7], [1, ["unix", 4711, None, 1]], [2, ["\udce9"]], [2, "a"]]
WHOLE = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(0, 300)
PLAIN = st.none() | st.booleans() | st.text(max_size=3) | st.just("\udcff") | WHOLE | st.floats()
ORDERS = st.none() | st.permutations(range(1, 5)).map(lambda rows: tuple(rows[:3]))
GONE = st.just(ABSENT)


def changes(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Tuple[List[int], List[Any]]]:
    return st.sets(st.integers(0, SAMPLES - 1), min_size=1).flatmap(
        lambda at: st.tuples(
            st.just(sorted(at)), st.lists(values, min_size=len(at), max_size=len(at))
        )
    )


COLUMNS = st.dictionaries(
    st.integers(0, len(NODES)),
    st.one_of(*(changes(each | GONE) for each in (WHOLE, st.floats(), PLAIN, ORDERS))),
)


def read(body: bytes) -> Dict[int, Tuple[List[int], List[Any]]]:
    columns = unpack(body).columns
    return {node: _plain(*each.column()) for node, each in columns.items()}


def _plain(at: Any, values: Any) -> Tuple[List[int], List[Any]]:
    """Comparable: NaN equals itself, and True is not 1."""
    return list(at), [(type(each), repr(each)) for each in values]


@settings(max_examples=200, deadline=None)
@given(COLUMNS)
def test_any_columns_come_back_equal(columns: Dict[int, Any]) -> None:
    content = Columns(SAMPLES, 1, NODES, columns)
    expected = {node: _plain(*each) for node, each in columns.items()}
    for body in (pack(content), Packing(content).finish()):
        found = unpack(body)
        assert (found.samples, found.first_node) == (SAMPLES, 1)
        assert [[parent, part] for parent, part in found.nodes] == NODES
        assert read(body) == expected


def test_a_body_says_what_it_is() -> None:
    columns = {1: ([0], [1])}
    first, later = Columns(1, 1, NODES, columns), Columns(1, 7, [], columns)
    assert begins_anew(pack(first)) and not begins_anew(pack(later))
    assert is_block(Packing(first).finish()) and not is_block(pack(first))
    for none in (b"", b"Z", b"Q7", b"Zxx", b"z" + zlib.compress(b"[]"), b"Z" + zlib.compress(b"")):
        assert not begins_anew(none)


def test_packing_takes_about_as_many_steps_as_it_says() -> None:
    values = [number * number for number in range(2000)]
    columns = {node: (range(2000), values) for node in range(1, 7)}
    packing = Packing(Columns(2000, 1, NODES, columns))
    taken = 1
    while not packing.advance(1):
        taken += 1
    assert 2 < taken <= packing.steps
    assert read(packing.finish()).keys() == columns.keys()


def test_the_sound_one_is_read() -> None:
    assert read(bodies.packed(bodies.stream())) == {1: _plain([0], [7])}


@pytest.mark.parametrize("kind", bodies.LIES)
def test_what_no_writer_makes_is_refused(kind: str) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        read(bodies.packed(bodies.LIES[kind]))


@pytest.mark.parametrize("body", [b"", b"X", b"Z", b"Q", b"Xab", b"Zab"])
def test_what_is_not_compressed_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, lzma.LZMAError, zlib.error)):
        read(body)


def test_bodies_that_follow_may_not_change_more_together() -> None:
    limits = Limits()
    limits.take("changes", CHANGES_MAX - 1)
    unpack(bodies.packed(bodies.stream()), limits)
    with pytest.raises(ValueError, match="too many changes"):
        unpack(bodies.packed(bodies.stream()), limits)


def test_the_layout_is_what_the_documents_say() -> None:
    """`docs/recording.md` reads one with nothing but msgpack."""
    content = Columns(2, 1, [[0, "a"], [0, ["x", 1]]], {1: ([0, 1], [7, 9]), 2: ([1], [0.5])})
    written = [2, 1, 2, 2, 0, 0, 0, 2, "a", "x", 1, 1, 1, 0, 1, 2, 1, 2, 7, 2, 0.5]
    unpacker = msgpack.Unpacker(unicode_errors="surrogatepass")
    unpacker.feed(unpacked(pack(content), 1 << 20))
    assert list(unpacker) == written


def test_an_order_is_written_as_what_moved() -> None:
    orders = [(1, 2, 3), None, (3, 1, 2, 6), (), (2,)]
    content = Columns(SAMPLES, 1, NODES, {4: (range(SAMPLES), orders)})
    unpacker = msgpack.Unpacker(unicode_errors="surrogatepass")
    unpacker.feed(unpacked(pack(content), 1 << 20))
    stored = [6, None, 5, 0, 2, 0, 1, 0, 1, 0, 1, 3, 1, 1, 0, 6, 0, 2]
    assert list(unpacker)[-len(stored) :] == stored
    assert read(pack(content)) == {4: _plain(range(SAMPLES), orders)}


def test_an_observation_that_is_not_recorded_does_without() -> None:
    code = "import sys, udsprobe.commands.attach; assert 'msgpack' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)
