"""From a coroutine to what it awaits, and so on: the frames between a task and a future.

Source: `Objects/genobject.c` (`_PyGen_yf`, `async_gen_asend`, `coro_wrapper`, `anext_awaitable`),
`Modules/_asynciomodule.c` (`futureiterobject`). What a frame awaits is the last value on its stack,
from 3.15 on the one before (`gen_getyieldfrom`). From 3.14 on values and code are tagged pointers,
`_PyStackRef` in `pycore_stackref.h`: the lowest bit says who counts the reference, the second one
that it is no object.
"""

from __future__ import annotations

import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.layouts import FrameLayout
from udsprobe.symbols.cpython.tasks.objects import Objects

AWAITS_MAX = 100
"""One in another; a task with more is not told."""

_GOES_ON = frozenset(("coroutine", "generator", "async_generator"))
# Each has what it drives in its first word.
_DRIVES = frozenset(
    ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
)
_FUTURES = "_asyncio.FutureIter"
_FIRST, _WORD, _NUMBER, _STACK_BYTES_MAX = 16, struct.Struct("<Q"), struct.Struct("<i"), 1 << 20
_ARGUMENTS = 3
_COUNTED_ELSEWHERE, _NO_OBJECT = 1, 2
# Most have what they await, too, so far into them.
_HEAD_BYTES = 512


class Awaits(NamedTuple):
    """One frame.

    Attributes:
        code: address of its code object. name: of its name there. qualified_name: of that of its
            coroutine, 0 where the code's is one.
        arguments: addresses of its first ones, or of its variables; 0: none.
    """

    code: int
    name: int
    qualified_name: int
    arguments: Tuple[int, ...]


class Chain(NamedTuple):
    """The outermost frame first.

    Attributes:
        future: address of what is at its end; None: something else.
        seen: addresses, and what was there: as long as it is, the chain is this.
    """

    frames: Tuple[Awaits, ...]
    future: Optional[int]
    seen: Tuple[Tuple[int, bytes], ...]


class _Code(NamedTuple):
    name: int
    variables: int


class AwaitChains:
    """Of the coroutines of one process."""

    def __init__(self, objects: Objects, frames: PythonLayout, layout: FrameLayout) -> None:
        self._objects, self._frames, self._layout = objects, frames, layout
        self._codes: Dict[int, _Code] = {}
        self._head_bytes = layout.first + _ARGUMENTS * _WORD.size
        if layout.is_inside:
            self._head_bytes += layout.at

    def begin_round(self) -> None:
        """Other code may be where code was."""
        self._codes.clear()

    def of(self, coroutine: int) -> Optional[Chain]:
        """None: it runs, has ended, or is none that is known.

        Raises:
            OSError: what it awaits cannot be read.
        """
        frames: List[Awaits] = []
        seen: List[Tuple[int, bytes]] = []
        at = coroutine
        for _ in range(AWAITS_MAX):
            kind = self._objects.kind(at) if at else ""
            if kind in _GOES_ON:
                met = self._met(at, seen)
                if met is None:
                    return None
                frames.append(met[0])
                at = met[1]
            elif kind in _DRIVES:
                at = self._objects.word(at + _FIRST)
            else:
                future = self._objects.word(at + _FIRST) if kind == _FUTURES else None
                return Chain(tuple(frames), future, tuple(seen)) if frames else None
        return None

    def is_still(self, chain: Chain) -> bool:
        """Nothing of it has gone on; OSError as `of`."""
        read = self._objects.read
        return all(read(address, len(raw)) == raw for address, raw in chain.seen)

    def _met(self, coroutine: int, seen: List[Tuple[int, bytes]]) -> Optional[Tuple[Awaits, int]]:
        """Its frame, and what that awaits; 0: nothing."""
        layout, objects = self._layout, self._objects
        address, frame = coroutine, layout.at
        if not layout.is_inside:
            address, frame = objects.word(coroutine + layout.at), 0
            if not address:
                return None
        raw = objects.read_some(address, _HEAD_BYTES, self._head_bytes)
        if raw[layout.state] not in layout.suspended:
            return None
        (code,) = self._objects_of(_WORD.unpack_from(raw, frame + layout.code))
        name, variables = self._code(code)
        begin, end = self._stack(raw, address, frame, variables)
        if not begin <= end <= begin + _STACK_BYTES_MAX:
            return None
        # But for how often it is referred to, and what is behind it.
        seen.append((address + _WORD.size, raw[_WORD.size : max(end - address, self._head_bytes)]))
        at = end - layout.depth * _WORD.size
        awaits = raw[layout.state] in layout.delegating and at >= begin
        (awaited,) = self._objects_of((self._word(raw, address, at) if awaits else 0,))
        qualified = layout.qualified_name
        qualified = objects.word(coroutine + qualified) if qualified else 0
        # Where there are fewer, values of its stack follow.
        count = min(_ARGUMENTS, max(0, begin - address - frame - layout.first) // _WORD.size)
        arguments = struct.unpack_from(f"<{count}Q", raw, frame + layout.first)
        return Awaits(code, name, qualified, self._objects_of(arguments)), awaited

    def _objects_of(self, values: Tuple[int, ...]) -> Tuple[int, ...]:
        """Their addresses; 0: none."""
        if not self._layout.is_tagged:
            return values
        return tuple(0 if each & _NO_OBJECT else each & ~_COUNTED_ELSEWHERE for each in values)

    def _stack(self, raw: bytes, address: int, frame: int, variables: int) -> Tuple[int, int]:
        """Addresses at which its values begin and end."""
        layout = self._layout
        if layout.is_inside:
            first = address + frame + layout.first
            begin = first + variables * _WORD.size
            if layout.is_top_pointer:
                return begin, int(_WORD.unpack_from(raw, frame + layout.top)[0])
            (used,) = _NUMBER.unpack_from(raw, frame + layout.top)
            return begin, first + used * _WORD.size
        (begin,) = _WORD.unpack_from(raw, layout.values)
        if layout.is_top_pointer:
            return begin, int(_WORD.unpack_from(raw, layout.top)[0])
        (used,) = _NUMBER.unpack_from(raw, layout.top)
        return begin, begin + used * _WORD.size

    def _word(self, raw: bytes, address: int, at: int) -> int:
        """Of what was read, or of what is behind it."""
        if 0 <= at - address <= len(raw) - _WORD.size:
            return int(_WORD.unpack_from(raw, at - address)[0])
        return self._objects.word(at)

    def _code(self, code: int) -> _Code:
        if code not in self._codes:
            variables = self._layout.variables
            count = self._objects.number(code + variables) if variables else 0
            self._codes[code] = _Code(self._objects.word(code + self._frames.code_name), count)
        return self._codes[code]
