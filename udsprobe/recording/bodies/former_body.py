"""Bodies of recordings of schema 2: they are read, and not written any more.

Compressed as others; their first byte is x or z. Numbers are LEB128, signed ones zigzag; a
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
    section   of each column of orders: a section of them. Of each order 0: gone; 1:
              None; else the length + 2, and of each row its place, from 1 on, among
              those of the order before that are left; or 0, and the step from the
              new row before (signed)

The first section of columns is by the shape of their place, then by node; gaps,
tokens and large numbers are by kind, shape, number of changes and node.
"""

from __future__ import annotations

import json
import re
import struct
from itertools import accumulate
from typing import (
    Any,
    Callable,
    Iterator,
    List,
    NamedTuple,
    Sequence,
    Tuple,
)

from udsprobe.recording.bodies.columns import ABSENT, Column, PackedColumns, shapes
from udsprobe.recording.bodies.limits import Limits

_WHOLE_BITS_MAX = 77
"""A difference of two 64-bit numbers takes 67; what never ends would take all time."""

_FIRST_NODE = re.compile(rb'\{"samples":\d+,"first_node":(\d+),')
_DOUBLE, _BITS = struct.Struct("<d"), struct.Struct("<q")
_WHOLE, _REAL, _WORD, _ORDER = range(4)
_DENSE = 4
_LARGE = 255


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


def begins_anew(head: bytes) -> bool:
    """Whether the body needs none before it that begins with these bytes, unpacked."""
    found = _FIRST_NODE.search(head)
    return found is not None and int(found[1]) == 1


def read(raw: bytes, limits: Limits) -> PackedColumns:
    """As `body.unpack`, of a body that is unpacked, and raises the same."""
    return _Reader(raw, limits).body()


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
        shape = shapes(self._first_node, self._nodes)
        node = 0
        for step in self._heads:
            node += _signed(step)
            kind, changes = next(self._heads), next(self._heads)
            if not 0 < changes <= self._samples or kind > _ORDER:
                raise ValueError(f"{changes} changes of kind {kind}")
            self._limits.take("changes", changes)
            yield _Place(kind, shape.get(node, 0), changes, node)

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


def _signed(value: int) -> int:
    return ~(value >> 1) if value & 1 else value >> 1


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
