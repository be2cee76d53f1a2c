"""Columns as bytes: differences, in an order in which they look alike, compressed.

Layout of a body before compression. Numbers are LEB128, signed ones zigzag; a
section is its length in bytes and then these.

    section   JSON: samples, first_node, nodes, words
    section   of each column: step from the node before (signed), kind, changes
    section   gaps: a byte each; the first change's index, then how many unchanged
              samples follow before the next
    section   tokens: a byte each. 1: the leaf is gone; 2 and more: the signed
              difference from its last value. A column that changed in at least a
              quarter of the samples has no gaps, and a token of every sample: 0 is
              no change
    section   large: what is left above 255 of each byte 255 in the two before
    section   of each column of orders: a section of them

The first section of columns is by the shape of their place, then by node; gaps,
tokens and large numbers are by kind, shape and number of changes: neighbours have
numbers of a size, which is what the compressor learns.
"""

from __future__ import annotations

import json
import lzma
import re
import struct
import zlib
from itertools import accumulate, islice
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from udsprobe.recording.columns import ABSENT, Column, Columns
from udsprobe.recording.leaves import NODES_MAX, Component

BODY_BYTES_MAX = 64 << 20
"""Bodies that follow from each other are refused when they unpack to more."""

SAMPLES_MAX = 4096
"""So are those that say they hold more, seven blocks of ours."""

CHANGES_MAX = 1 << 21
"""And those with more changes: a block of ours ends at 800,000, after a sample."""

_HEAD_BYTES_MAX = 32 << 20
_ORDERED_MAX = 1 << 25

_SHIFTS_MAX = 1 << 32
"""Places moved in lists while orders are read: seconds."""

_WHOLE_BITS_MAX = 77

# Each takes a millisecond or two; a change is about a byte and a half before it is compressed.
_COLUMNS_PER_STEP, _BYTES_PER_STEP, _CHANGES_PER_STEP = 64, 8192, 5000
_HEAD_START_BYTES = 64
_FIRST_NODE = re.compile(rb'\{"samples":\d+,"first_node":(\d+),')
"""A difference of two 64-bit numbers takes 67; what never ends would take all time."""

_LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 20, "lc": 3, "lp": 0, "pb": 0}]
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")
_WHOLE, _REAL, _WORD, _ORDER = range(4)
_DENSE = 4
_LARGE = 255


class Limits:
    """What bodies that follow from each other may still hold."""

    def __init__(self) -> None:
        self._left = {
            "bytes": BODY_BYTES_MAX,
            "bytes of places": _HEAD_BYTES_MAX,
            "places": NODES_MAX,
            "changes": CHANGES_MAX,
            "rows in orders": _ORDERED_MAX,
            "moves in orders": _SHIFTS_MAX,
            "samples": SAMPLES_MAX,
        }

    @property
    def bytes_left(self) -> int:
        """For what comes next, unpacked."""
        return self._left["bytes"]

    def take(self, what: str, count: int) -> None:
        """Count what is there.

        Raises:
            ValueError: it is more than samples have.
        """
        self._left[what] -= count
        if self._left[what] < 0:
            raise ValueError(f"too many {what} to be samples")


class _Place(NamedTuple):
    """A column's kind, shape, number of changes and node: sorts as its numbers are stored."""

    kind: int
    shape: int
    changes: int
    node: int

    def is_dense(self, samples: int) -> bool:
        return self.kind != _ORDER and self.changes * _DENSE >= samples > 1


class Packed(NamedTuple):
    """One column, its differences not yet added up: most readers want few columns."""

    place: _Place
    samples: int
    gaps: Sequence[int]
    tokens: Sequence[int]
    words: Sequence[Any]
    limits: Limits

    def column(self) -> Column:
        """When it changed and to what.

        Raises:
            ValueError: it has more changes than it says, or later ones, or more rows than any.
        """
        place, tokens = self.place, self.tokens
        if place.is_dense(self.samples):
            indices = [index for index, token in enumerate(tokens) if token]
            tokens = [token for token in tokens if token]
        else:
            indices = [at + gap for at, gap in enumerate(accumulate(self.gaps))]
        if len(indices) != place.changes or indices[-1] >= self.samples:
            raise ValueError("a column with other changes")
        if place.kind == _ORDER:
            return indices, _order_values(tokens, place.changes, self.limits)
        return indices, _VALUES[place.kind](tokens, self.words)


class PackedColumns(NamedTuple):
    """As `Columns`; a column is made when it is asked for."""

    samples: int
    first_node: int
    nodes: Sequence[Any]
    columns: Mapping[int, Packed]


def pack(columns: Columns) -> bytes:
    """Compressed bytes, made fast."""
    writer = _Writer(columns)
    for _ in writer.parts():
        pass
    return b"z" + zlib.compress(writer.raw, 6)


class Packing:
    """A body made small, which takes a while: in steps of some milliseconds.

    Args:
        columns: that do not change any more.

    Attributes:
        steps: how many there are, or a few more.
    """

    def __init__(self, columns: Columns) -> None:
        changes = sum(len(values) for _, values in columns.columns.values())
        self.steps = 2 + len(columns.columns) // _COLUMNS_PER_STEP + changes // _CHANGES_PER_STEP
        self._body = bytearray(b"x")
        self._work = self._made(_Writer(columns))

    def advance(self, steps: int) -> bool:
        """Go on; True when it is complete."""
        return len(list(islice(self._work, steps))) < steps

    def finish(self) -> bytes:
        """The body."""
        for _ in self._work:
            pass
        return bytes(self._body)

    def _made(self, writer: _Writer) -> Iterator[None]:
        yield from writer.parts()
        packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=_LZMA)
        for at in range(0, len(writer.raw), _BYTES_PER_STEP):
            self._body += packer.compress(writer.raw[at : at + _BYTES_PER_STEP])
            yield
        self._body += packer.flush()


def begins_anew(body: bytes) -> bool:
    """Whether it needs none before it; False of what is no body, too."""
    try:
        head = zlib.decompressobj().decompress(body[1:], _HEAD_START_BYTES)
    except zlib.error:
        return False
    found = _FIRST_NODE.search(head)
    return found is not None and int(found[1]) == 1


def unpack(body: bytes, limits: Optional[Limits] = None) -> PackedColumns:
    """What `pack` was given.

    Args:
        limits: shared by bodies that follow from each other.

    Raises:
        ValueError, lzma.LZMAError, zlib.error, IndexError, KeyError, TypeError:
            these are not the bytes that `pack` made.
    """
    limits = limits or Limits()
    method, packed, bytes_max = body[:1], body[1:], limits.bytes_left + 1
    if method == b"z":
        raw = zlib.decompressobj().decompress(packed, bytes_max)
    elif method == b"x":
        opened = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_LZMA)
        raw = opened.decompress(packed, bytes_max)
    else:
        raise ValueError(f"compressed by {method!r}")
    limits.take("bytes", len(raw))
    return _Reader(raw, limits).body()


class _Writer:
    def __init__(self, content: Columns) -> None:
        self._content = content
        self._words: Dict[str, int] = {}
        self._heads, self._gaps, self._tokens, self._large, self._orders = (
            bytearray() for _ in range(5)
        )
        self.raw = bytearray()

    def parts(self) -> Iterator[None]:
        """Makes `raw`, and stops again and again."""
        columns = self._content.columns
        shape = _shapes(self._content.first_node, self._content.nodes)
        places = [
            _Place(_kind(values), shape(node), len(at), node)
            for node, (at, values) in columns.items()
        ]
        before = 0
        for place in sorted(places, key=_by_shape):
            _put(self._heads, _zigzag(place.node - before), place.kind, place.changes)
            before = place.node
        yield
        for number, place in enumerate(sorted(places), 1):
            self._column(place, *columns[place.node])
            if number % _COLUMNS_PER_STEP == 0:
                yield
        head = json.dumps(self._head(), separators=(",", ":")).encode("ascii")
        for part in (head, self._heads, self._gaps, self._tokens, self._large, self._orders):
            _put(self.raw, len(part))
            self.raw += part

    def _head(self) -> Dict[str, Any]:
        return {
            "samples": self._content.samples,
            "first_node": self._content.first_node,
            "nodes": self._content.nodes,
            "words": [json.loads(word) for word in self._words],
        }

    def _column(self, place: _Place, at: Sequence[int], values: Sequence[Any]) -> None:
        samples = self._content.samples
        tokens = _tokens(self._wholes(place.kind, values)) if place.kind != _ORDER else None
        if place.is_dense(samples) and tokens is not None:
            every = [0] * samples
            for index, token in zip(at, tokens):
                every[index] = token
            self._bytes(self._tokens, every)
            return
        if samples > 1:
            self._bytes(self._gaps, [b - a - 1 for a, b in zip((-1, *at), at)])
        if tokens is not None:
            self._bytes(self._tokens, tokens)
        else:
            part = bytearray()
            for order in _order_tokens(values):
                _put(part, order)
            _put(self._orders, len(part))
            self._orders += part

    def _wholes(self, kind: int, values: Sequence[Any]) -> Sequence[Any]:
        if kind == _REAL:
            return [v if v is ABSENT else _BITS.unpack(_DOUBLE.pack(v))[0] for v in values]
        if kind == _WORD:
            return [v if v is ABSENT else self._word(v) for v in values]
        return values

    def _word(self, value: Any) -> int:
        return self._words.setdefault(json.dumps(value), len(self._words))

    def _bytes(self, section: bytearray, numbers: Sequence[int]) -> None:
        if max(numbers) < _LARGE:
            section += bytes(numbers)
            return
        for number in numbers:
            if number < _LARGE:
                section.append(number)
            else:
                section.append(_LARGE)
                _put(self._large, number - _LARGE)


class _Reader:
    def __init__(self, raw: bytes, limits: Limits) -> None:
        self._limits = limits
        raws = _sections(raw)
        written = next(raws)
        limits.take("bytes of places", len(written))
        head = json.loads(written)
        self._samples, self._first_node = int(head["samples"]), int(head["first_node"])
        self._nodes, self._words = head["nodes"], head["words"]
        heads, self._gaps, self._tokens = next(raws), _Bytes(next(raws)), _Bytes(next(raws))
        self._heads = iter(_numbers(heads))
        self._large = iter(_numbers(next(raws)))
        self._orders = _sections(next(raws))
        if self._samples <= 0 or next(raws, None) is not None:
            raise ValueError(f"{self._samples} samples in one body")
        limits.take("samples", self._samples)
        limits.take("places", len(self._nodes))

    def body(self) -> PackedColumns:
        columns = {place.node: self._column(place) for place in sorted(self._places())}
        ends = (self._gaps.is_at_end(), self._tokens.is_at_end())
        if not all(ends) or next(self._large, None) is not None:
            raise ValueError("more than samples")
        return PackedColumns(self._samples, self._first_node, self._nodes, columns)

    def _places(self) -> Iterator[_Place]:
        shape = _shapes(self._first_node, self._nodes)
        node = 0
        for step in self._heads:
            node += _signed(step)
            kind, changes = next(self._heads), next(self._heads)
            if not 0 < changes <= self._samples or kind > _ORDER:
                raise ValueError(f"{changes} changes of kind {kind}")
            self._limits.take("changes", changes)
            yield _Place(kind, shape(node), changes, node)

    def _column(self, place: _Place) -> Packed:
        gaps: Sequence[int] = (0,)
        is_dense = place.is_dense(self._samples)
        if self._samples > 1 and not is_dense:
            gaps = self._take(self._gaps, place.changes)
        if place.kind == _ORDER:
            tokens: Sequence[int] = next(self._orders)
        else:
            tokens = self._take(self._tokens, self._samples if is_dense else place.changes)
        return Packed(place, self._samples, gaps, tokens, self._words, self._limits)

    def _take(self, section: _Bytes, count: int) -> Sequence[int]:
        taken = section.take(count)
        if _LARGE not in taken:
            return taken
        return [each if each < _LARGE else each + next(self._large) for each in taken]


class _Bytes:
    """A section of single bytes, taken from its start."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._raw[self._at : self._at + count]
        self._at += count
        if len(taken) != count:
            raise ValueError("less than samples")
        return taken

    def is_at_end(self) -> bool:
        return self._at == len(self._raw)


def _sections(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        length, at = _whole(raw, at)
        if at + length > len(raw):
            raise ValueError("a section that ends too early")
        yield raw[at : at + length]
        at += length


def _numbers(raw: bytes) -> Iterator[int]:
    at, end = 0, len(raw)
    while at < end:
        byte = raw[at]
        at += 1
        if byte > 0x7F:
            byte, at = _whole(raw, at - 1)
        yield byte


def _whole(raw: bytes, at: int) -> Tuple[int, int]:
    """A number, and where the next one begins."""
    byte = raw[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _WHOLE_BITS_MAX:
            raise ValueError("a number without an end")
    return value, at


def _put(out: bytearray, *values: int) -> None:
    for value in values:
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ~(value << 1)


def _signed(value: int) -> int:
    return ~(value >> 1) if value & 1 else value >> 1


def _tokens(values: Sequence[Any]) -> List[int]:
    before, tokens = 0, []
    for value in values:
        if value is ABSENT:
            tokens.append(1)
        else:
            step = value - before
            tokens.append((step << 1 if step >= 0 else ~(step << 1)) + 2)
            before = value
    return tokens


def _whole_values(tokens: Sequence[int], _: Sequence[Any]) -> List[Any]:
    before, values = 0, []
    for token in tokens:
        if token == 1:
            values.append(ABSENT)
        else:
            before += (token >> 1) - 1 if not token & 1 else ~((token >> 1) - 1)
            values.append(before)
    return values


def _real_values(tokens: Sequence[int], words: Sequence[Any]) -> List[Any]:
    bits = _whole_values(tokens, words)
    return [b if b is ABSENT else _DOUBLE.unpack(_BITS.pack(b))[0] for b in bits]


def _word_values(tokens: Sequence[int], words: Sequence[Any]) -> List[Any]:
    return [at if at is ABSENT else words[at] for at in _whole_values(tokens, words)]


def _order_tokens(values: Sequence[Any]) -> Iterator[int]:
    """0: gone; 1: None; else the length + 2, then each.

    One that was in the order before: its place among those left of it, from 1.
    A new one: 0 and the step from the new node before (signed).
    """
    before: Sequence[int] = ()
    for value in values:
        if value is ABSENT or value is None:
            yield 0 if value is ABSENT else 1
            continue
        yield len(value) + 2
        left, known, last = list(before), set(before), 0
        for node in value:
            if node in known:
                place = left.index(node)
                del left[place]
                yield place + 1
            else:
                yield from (0, _zigzag(node - last))
                last = node
        before = value


def _order_values(raw: Sequence[int], changes: int, limits: Limits) -> List[Any]:
    source = _numbers(bytes(raw))
    before: Sequence[int] = ()
    values: List[Any] = []
    for _ in range(changes):
        length = next(source) - 2
        if length < 0:
            values.append(ABSENT if length == -2 else None)
            continue
        limits.take("rows in orders", length)
        before = _order_value(source, length, list(before), limits)
        values.append(before)
    if next(source, None) is not None:
        raise ValueError("more than orders")
    return values


def _order_value(
    source: Iterator[int], length: int, left: List[int], limits: Limits
) -> Tuple[int, ...]:
    last, moves, order = 0, 0, []
    for _ in range(length):
        place = next(source)
        if place:
            moves += len(left) - place
            order.append(left.pop(place - 1))
        else:
            last += _signed(next(source))
            order.append(last)
    limits.take("moves in orders", moves)
    if order and (min(order) < 1 or len(set(order)) != length):
        raise ValueError("rows that are repeated or missing")
    return tuple(order)


_VALUES: Sequence[Callable[[Sequence[int], Sequence[Any]], List[Any]]] = (
    _whole_values,
    _real_values,
    _word_values,
)


def _kind(values: Sequence[Any]) -> int:
    kinds = {type(each) for each in values if each is not ABSENT}
    if kinds <= {int}:
        return _WHOLE
    if kinds == {float}:
        return _REAL
    return _ORDER if tuple in kinds else _WORD


def _by_shape(place: _Place) -> Tuple[int, int]:
    return place.shape, place.node


def _shapes(first_node: int, nodes: Sequence[Any]) -> Callable[[int], int]:
    """Node → a number that nodes share which differ in their rows or indices: they look alike."""
    shapes: Dict[int, int] = {0: 0}
    ids: Dict[Any, int] = {}
    for number, (parent, component) in enumerate(nodes, first_node):
        step: Component = component
        if not isinstance(component, str):
            step = "*" if isinstance(component, list) else "0"
        shapes[number] = ids.setdefault((shapes.get(parent, 0), step), len(ids) + 1)
    return lambda node: shapes.get(node, 0)
