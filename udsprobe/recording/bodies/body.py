"""A body: columns as msgpack, in an order in which neighbours look alike, compressed.

Its first byte says how: X is raw LZMA2, Z is zlib. Unpacked, it is a stream of msgpack values
without any containers. An empty array stands for a leaf that is gone. One after the other:

    head        samples, number of the first node, how many nodes, how many columns
    parents     of each node: its parent, less the parent of the node before
    lengths     of each node: how many parts its component has if it is a list, else 0
    components  of each node: the name or index, or the parts of the list
    nodes       of each column: its node, less the node of the column before
    kinds       of each column: 0 whole numbers, 1 words and others, 2 orders
    counts      of each column: its changes
    gaps        of each change: samples since the one before, of the first its place from 1 on;
                not of a column that changed in every sample
    values      of each change. Whole numbers: less the one before. Others: as they are. Orders:
                how many `moves` they have, or nil for None
    moves       of each order: what moved in it (`orders.py`)

Columns are sorted by kind, by the shape of their place, by the number of their changes and by node:
neighbours have numbers of a size, which is what the compressor learns.
"""

from __future__ import annotations

import lzma
import zlib
from array import array
from itertools import accumulate, chain, islice
from operator import sub
from typing import (
    AbstractSet,
    Any,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from msgpack import Packer, Unpacker

from udsprobe.recording.bodies import former_body
from udsprobe.recording.bodies.columns import ABSENT, Column, Columns, PackedColumns, shapes
from udsprobe.recording.bodies.leaves import Component
from udsprobe.recording.bodies.limits import Limits
from udsprobe.recording.bodies.orders import moves_of, orders_of

_LZMA = [{"id": lzma.FILTER_LZMA2, "nice_len": 48, "depth": 16, "dict_size": 1 << 20, "pb": 0}]
_OF_BLOCKS, _OF_SAMPLES, _FORMER = (b"X", b"x"), (b"Z", b"z"), (b"x", b"z")
# Written and compressed in a millisecond or two.
_VALUES_PER_STEP = 4096
_HEAD_BYTES_MAX = 64
_WHOLE, _PLAIN, _ORDER = range(3)
_SCALARS: AbstractSet[type] = frozenset({int, float, str, bool, type(None)})
_TYPES = (frozenset({int}), _SCALARS, frozenset({int, type(None)}))
_NUMBERS, _COUNTS, _KINDS = range(-(1 << 31), 1 << 31), range(1 << 31), range(_ORDER + 1)
_GONE = ()
# Between numbers that are less apart than this, differences have 64 bits.
_FAR = 1 << 63


def pack(columns: Columns) -> bytes:
    """Compressed bytes, made fast: for a sample."""
    return _OF_SAMPLES[0] + zlib.compress(b"".join(_written(columns)), 6)


class Packing:
    """A body made small, which takes a while: in steps of some milliseconds.

    Args:
        columns: that do not change any more.

    Attributes:
        steps: about how many there are.
    """

    def __init__(self, columns: Columns) -> None:
        changes = sum(len(values) for _, values in columns.columns.values())
        values = 4 * len(columns.nodes) + 3 * len(columns.columns) + 2 * changes
        self.steps = 2 + values // _VALUES_PER_STEP
        self._body = bytearray(_OF_BLOCKS[0])
        self._work = self._made(columns)

    def advance(self, steps: int) -> bool:
        """Go on; True when it is complete."""
        return len(list(islice(self._work, steps))) < steps

    def finish(self) -> bytes:
        """The body."""
        for _ in self._work:
            pass
        return bytes(self._body)

    def _made(self, columns: Columns) -> Iterator[None]:
        compressor = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=_LZMA)
        for part in _written(columns):
            self._body += compressor.compress(part)
            yield
        self._body += compressor.flush()


def is_block(body: bytes) -> bool:
    """Whether it holds all samples of a block, so that none before it is needed."""
    return body[:1] in _OF_BLOCKS


def begins_anew(body: bytes) -> bool:
    """Whether the body of a sample needs none before it; False of what is no body, too."""
    try:
        head = unpacked(body, _HEAD_BYTES_MAX)
        if body[:1] in _FORMER:
            return former_body.begins_anew(head)
        return _Stream(head).numbers(4)[1] == 1
    except (lzma.LZMAError, zlib.error, ValueError, TypeError, OverflowError):
        return False


def unpack(body: bytes, limits: Optional[Limits] = None) -> PackedColumns:
    """What `pack` was given.

    Args:
        limits: shared by bodies that follow from each other.

    Raises:
        ValueError, lzma.LZMAError, zlib.error, IndexError, KeyError, TypeError, OverflowError,
            StopIteration: these are not the bytes that `pack` made.
    """
    limits = limits or Limits()
    raw = unpacked(body, limits.bytes_left + 1)
    limits.take("bytes", len(raw))
    return former_body.read(raw, limits) if body[:1] in _FORMER else _read(raw, limits)


def unpacked(body: bytes, bytes_max: int) -> bytes:
    """No more than the first `bytes_max` of the stream in it.

    Raises:
        ValueError, lzma.LZMAError, zlib.error: there is none.
    """
    method, packed = body[:1], body[1:]
    if method in _OF_BLOCKS:
        opened = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_LZMA)
        return opened.decompress(packed, bytes_max)
    if method in _OF_SAMPLES:
        return zlib.decompressobj().decompress(packed, bytes_max)
    raise ValueError(f"compressed by {method!r}")


def _written(columns: Columns) -> Iterator[bytes]:
    packer = Packer(unicode_errors="surrogatepass")
    values = chain.from_iterable(_lists(columns))
    while step := tuple(islice(values, _VALUES_PER_STEP)):
        # An array without its header is nothing but its values.
        yield packer.pack(step)[len(packer.pack_array_header(len(step))) :]


def _lists(content: Columns) -> Iterator[Iterable[Any]]:
    """In the order of the layout."""
    samples, first_node, nodes, columns = content
    shape = shapes(first_node, nodes)
    places = sorted(
        (_kind(values), shape.get(node, 0), len(at), node) for node, (at, values) in columns.items()
    )
    yield samples, first_node, len(nodes), len(places)
    yield _differences([parent for parent, _ in nodes])
    yield (len(each) if isinstance(each, list) else 0 for _, each in nodes)
    yield chain.from_iterable(each if isinstance(each, list) else (each,) for _, each in nodes)
    yield _differences([node for *_, node in places])
    yield (kind for kind, *_ in places)
    yield (count for *_, count, _ in places)
    changes = [(kind, *columns[node]) for kind, *_, node in places]
    moves = [list(moves_of(values)) for kind, _, values in changes if kind == _ORDER]
    yield from (map(sub, at, (-1, *at)) for _, at, _ in changes if len(at) < samples)
    yield from (_stored(kind, values) for kind, _, values in changes if kind != _ORDER)
    yield from (_lengths(each) for each in moves)
    yield from (each for each in chain.from_iterable(moves) if isinstance(each, list))


def _kind(values: Sequence[Any]) -> int:
    there = _there(values)
    types = set(map(type, there))
    if types == {int} and max(there) - min(there) < _FAR:
        return _WHOLE
    return _ORDER if tuple in types else _PLAIN


def _there(values: Sequence[Any]) -> Sequence[Any]:
    return [each for each in values if each is not ABSENT] if ABSENT in values else values


def _stored(kind: int, values: Sequence[Any]) -> Iterable[Any]:
    there = _there(values)
    stored = _differences(there) if kind == _WHOLE else iter(there)
    if there is values:
        return stored
    return (_GONE if each is ABSENT else next(stored) for each in values)


def _lengths(moves: Sequence[Any]) -> Iterable[Any]:
    lengths = [len(each) if isinstance(each, list) else each for each in moves]
    return _stored(_ORDER, lengths)


def _differences(values: Sequence[int]) -> Iterator[int]:
    return map(sub, values, (0, *values))


class _Stream:
    """Values of msgpack from their start, none of which has others in it."""

    def __init__(self, raw: bytes) -> None:
        self._bytes = len(raw)
        self._values = Unpacker(
            max_buffer_size=len(raw),
            use_list=False,
            unicode_errors="surrogatepass",
            max_array_len=0,
            max_map_len=0,
            max_bin_len=0,
            max_ext_len=0,
        )
        self._values.feed(raw)

    def numbers(self, count: int, allowed: range = _NUMBERS) -> Sequence[int]:
        found = array("i", islice(self._values, count))
        if len(found) != count or not all(each(found) in allowed for each in (min, max) if found):
            raise ValueError("less than samples, or something else")
        return found

    def scalars(self, count: int, types: AbstractSet[type]) -> List[Any]:
        found = list(islice(self._values, count))
        if len(found) != count or not types >= set(map(type, found)):
            raise ValueError("less than samples, or something else")
        return found

    def is_at_end(self) -> bool:
        return bool(self._values.tell() == self._bytes)


class _Packed(NamedTuple):
    """One column as it is stored: most readers want few columns."""

    kind: int
    samples: int
    gaps: Sequence[int]
    stored: Sequence[Any]
    moves: Sequence[int]
    limits: Limits

    def column(self) -> Column:
        """When it changed and to what.

        Raises:
            ValueError: it is no column.
        """
        at = list(accumulate(self.gaps, initial=-1))[1:] if self.gaps else range(self.samples)
        types = set(map(type, self.stored))
        if at[-1] >= self.samples or not types - {tuple} <= _TYPES[self.kind]:
            raise ValueError("a column with other changes")
        if tuple not in types:
            return at, list(self._values(self.stored))
        values = self._values([each for each in self.stored if each != _GONE])
        return at, [ABSENT if each == _GONE else next(values) for each in self.stored]

    def _values(self, there: Sequence[Any]) -> Iterator[Any]:
        if self.kind == _WHOLE:
            return accumulate(there)
        return orders_of(there, self.moves, self.limits) if self.kind == _ORDER else iter(there)


def _read(raw: bytes, limits: Limits) -> PackedColumns:
    stream = _Stream(raw)
    samples, first_node, nodes, columns = stream.numbers(4, _COUNTS)
    limits.take("samples", samples)
    limits.take("places", nodes)
    limits.take("changes", columns)
    places = list(_places(stream, nodes, limits))
    known = range(first_node + nodes)
    packed = dict(_columns(stream, columns, samples, len(known), limits))
    if not samples or len(packed) != columns or not all(map(known.__contains__, packed)):
        raise ValueError(f"{columns} columns of {samples} samples")
    if not stream.is_at_end():
        raise ValueError("more than samples")
    return PackedColumns(samples, first_node, places, packed)


def _places(stream: _Stream, count: int, limits: Limits) -> Iterator[Tuple[int, Component]]:
    parents = accumulate(stream.numbers(count))
    lengths = stream.numbers(count, _COUNTS)
    parts_count = sum(lengths) + lengths.count(0)
    limits.take("parts of places", parts_count)
    parts = iter(stream.scalars(parts_count, _SCALARS))
    for parent, length in zip(parents, lengths):
        yield parent, list(islice(parts, length)) if length else next(parts)


def _columns(
    stream: _Stream, columns: int, samples: int, known: int, limits: Limits
) -> Iterator[Tuple[int, _Packed]]:
    nodes, kinds = accumulate(stream.numbers(columns)), stream.numbers(columns, _KINDS)
    counts = stream.numbers(columns, range(1, samples + 1))
    limits.take("changes", sum(counts) - columns)
    sparse = [0 if each == samples else each for each in counts]
    gaps = stream.numbers(sum(sparse), range(1, samples + 1))
    stored = stream.scalars(sum(counts), _SCALARS | {tuple})
    ends = zip(accumulate(counts), sparse, accumulate(sparse))
    for node, kind, count, (end, gaps_count, gaps_end) in zip(nodes, kinds, counts, ends):
        its_gaps = gaps[gaps_end - gaps_count : gaps_end] if gaps_count else ()
        values = stored[end - count : end]
        moves = stream.numbers(_moves_in(values, known, limits)) if kind == _ORDER else ()
        yield node, _Packed(kind, samples, its_gaps, values, moves, limits)


def _moves_in(stored: Sequence[Any], known: int, limits: Limits) -> int:
    lengths = [each for each in stored if type(each) is int]
    if not all(0 <= each <= 2 * known for each in lengths):
        raise ValueError("rows that are repeated or missing")
    limits.take("rows in orders", sum(lengths))
    return sum(lengths)
