"""Bodies of recordings by hand, list by list, and what strangers could put into them."""

from __future__ import annotations

import zlib
from typing import Any, Dict, List

from msgpack import ExtType, Packer, Timestamp

MILLION = 1_000_000
SOUND: Dict[str, List[Any]] = {
    "head": [1, 1, 1, 1],
    "parents": [0],
    "lengths": [0],
    "components": ["sequence"],
    "nodes": [1],
    "kinds": [0],
    "counts": [1],
    "gaps": [],
    "values": [7],
    "moves": [],
}
"""A sample of one field; in the order of the lists."""


def stream(**lists: List[Any]) -> bytes:
    """The sound one with other lists."""
    packer = Packer(autoreset=False, unicode_errors="surrogatepass")
    for each in {**SOUND, **lists}.values():
        for value in each:
            packer.pack(value)
    return bytes(packer.bytes())


def packed(raw: bytes) -> bytes:
    """As a sample has it."""
    return b"Z" + zlib.compress(raw)


def _raw(value: bytes) -> bytes:
    """With this in the place of its only value."""
    return stream()[:-1] + value


def _order(*moves: int, length: Any) -> bytes:
    return stream(kinds=[2], values=[length], moves=list(moves))


def _gaps(*gaps: int) -> bytes:
    return stream(head=[3, 1, 1, 1], counts=[2], gaps=list(gaps), values=[1, 1])


LIES = {
    "nothing": b"",
    "samples without an end": stream(head=[1 << 62, 1, 1, 1]),
    "as many as infinity": stream(head=[float("inf"), 1, 1, 1]),
    "no samples": stream(head=[0, 1, 1, 1]),
    "fewer places than none": stream(head=[1, 1, -1, 1]),
    "more places than any": stream(head=[1, 1, 1 << 30, 1]),
    "more columns than any": stream(head=[1, 1, 1, 1 << 30]),
    "more parts than any": stream(lengths=[1 << 30]),
    "fewer parts than none": stream(lengths=[-1]),
    "a name that is none": stream(components=[()]),
    "a column of no place": stream(nodes=[2]),
    "a column before the first": stream(nodes=[-1]),
    "a column twice": stream(
        head=[1, 1, 1, 2], nodes=[1, 0], kinds=[0, 0], counts=[1, 1], values=[7, 7]
    ),
    "a kind that is none": stream(kinds=[3]),
    "no change": stream(counts=[0]),
    "more changes than samples": stream(counts=[2], values=[7, 7]),
    "a change at the same sample": _gaps(1, 0),
    "a change before the last": _gaps(2, -1),
    "a change after the end": _gaps(2, 2),
    "a word among numbers": stream(values=["7"]),
    "half a number": stream(values=[7.5]),
    "true as a number": stream(values=[True]),
    "an order of words": _order(length="7"),
    "an order among words": stream(kinds=[1], values=[(1, 1)]),
    "half an order": _order(0, length=2.5),
    "rows without an end": _order(length=1 << 62),
    "fewer rows than none": _order(length=-1),
    "more rows than places": _order(*[0, 1] * 3, length=6),
    "a row that was not there": _order(1, length=1),
    "a row of no order": _order(-1, length=1),
    "no row": _order(0, length=1),
    "a row before the first": _order(0, -1, length=2),
    "rows twice": _order(0, 1, 0, 0, length=4),
    "more than samples": stream(moves=[0]),
    "brackets": _raw(b"\x91" * MILLION),
    "brackets at once": b"\x91" * MILLION,
    "an array of 2^32": _raw(b"\xdd\xff\xff\xff\xff"),
    "a map of 2^32": _raw(b"\xdf\xff\xff\xff\xff"),
    "a word of 2^32 bytes": _raw(b"\xdb\xff\xff\xff\xff"),
    "a map": _raw(b"\x80"),
    "bytes": stream(values=[b"7"]),
    "no bytes": stream(values=[b""]),
    "a time": stream(values=[Timestamp(7)]),
    "a type of nobody's": stream(values=[ExtType(1, b"")]),
    "no text": stream(kinds=[1])[:-1] + b"\xa1\xff",
    "a byte of no meaning": _raw(b"\xc1"),
    **{f"the first {end} bytes": stream()[:end] for end in range(1, len(stream()))},
}
"""Streams that no writer makes: `unpack`, or reading their columns, refuses them."""

DEEP = 50_000
BOMBS = {
    "a tree as deep as it is large": stream(
        head=[1, 1, DEEP, 1],
        parents=[0] + [1] * (DEEP - 1),
        lengths=[0] * DEEP,
        components=["a"] * DEEP,
    ),
    "a number of 66 bits": stream(head=[4, 1, 1, 1], counts=[4], values=[(1 << 64) - 1] * 4),
    "many parts": stream(
        head=[1, 1, 2, 1],
        parents=[0, 0],
        lengths=[MILLION, MILLION],
        components=["ab"] * 2 * MILLION,
    ),
    "words": stream(
        head=[4096, 1, 400, 400],
        parents=[0] * 400,
        lengths=[0] * 400,
        components=list(range(400)),
        nodes=[1] * 400,
        kinds=[1] * 400,
        counts=[4096] * 400,
        values=["ab"] * 4096 * 400,
    ),
    "zeros": bytes(256 * MILLION),
}
"""Streams that are sound as such, and of no samples: they may cost little."""
