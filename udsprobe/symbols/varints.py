"""Numbers of seven bits a byte, the lowest first: Go's tables and V8's have them."""

from __future__ import annotations

from typing import Iterator


def varints(raw: bytes) -> Iterator[int]:
    """All that are whole."""
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield value
            value = shift = 0


def signed(value: int) -> int:
    """Of a number whose lowest bit is its sign."""
    return (value >> 1) ^ -(value & 1)
