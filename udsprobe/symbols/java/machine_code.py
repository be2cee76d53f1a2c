"""Where a method's machine code (x86-64) makes its frame, gives it back, and calls.

As the compilers of HotSpot emit them: MacroAssembler::verified_entry and MachEpilogNode of
src/hotspot/cpu/x86/x86_64.ad, C1_MacroAssembler::build_frame and remove_frame.
"""

from __future__ import annotations

import re
import struct
from typing import Match, NamedTuple, Optional

CALL_BYTES = 7
"""The longest instruction that calls."""

EPILOGUE_BYTES = 24
"""From giving a frame back to the return."""

ENTER = re.compile(rb"\x55\x48(\x8b\xec|\x89\xe5)", re.S)
"""`push %rbp; mov %rsp,%rbp`."""

_CALL = re.compile(
    rb"\xe8.{4}|\xff(\x15.{4}|[\xd0-\xd7]|[\x50-\x53\x55-\x57].|[\x10-\x13\x16\x17]"
    rb"|[\x90-\x93\x95-\x97].{4}|\x14.|\x54..|\x94.{5})",
    re.S,
)
_SUB = rb"\x48(?:\x83\xec(?P<room>.)|\x81\xec(?P<room_long>.{4}))"
_PUSHES = re.compile(rb"\x55(?P<mark>\x48\x8b\xec|\x48\x89\xe5)?" + _SUB, re.S)
_MOVES = re.compile(_SUB + rb"\x48\x89(?:\x6c\x24.|\xac\x24.{4})", re.S)
_ADD = re.compile(rb"\x48(?:\x83\xc4(?P<room>.)|\x81\xc4(?P<room_long>.{4}))\x5d", re.S)
# Whether a safepoint is due: of JDK 16 and later, of 10 to 15, of 8 and 9.
_POLL = re.compile(
    rb"(?P<asks>\x49\x3b(?:\x67.|\xa7.{4}))(?P<leaves>\x0f\x87.{4})"
    rb"|(?P<loads>\x4d\x8b(?:\x57.|\x97.{4}))(?P<tests>\x41\x85\x02)|(?P<touches>\x85\x05.{4})",
    re.S,
)
# Of what calls native methods: whether there is an exception.
_LEAVE = re.compile(
    rb"\xc9(?P<asks>\x49(\x81\x7f.{5}|\x81\xbf.{8}|\x83\x7f.{2}|\x83\xbf.{5}))"
    rb"(?P<leaves>\x0f\x85.{4})",
    re.S,
)
_POP, _RETURN = b"\x5d", b"\xc3"
_SHORT, _LONG = struct.Struct("<b"), struct.Struct("<i")


class Prologue(NamedTuple):
    """Offsets in a method's code.

    Attributes:
        pushed: from there on the caller's frame pointer is below the return address; below 0: it
            is only saved when the frame is complete.
        has_room: from there on the frame has its size.
        complete: and from there on all is saved.
    """

    pushed: int
    has_room: int
    complete: int


def ends_call(code: bytes) -> bool:
    """Whether the last bytes are an instruction that calls; they may be one by chance."""
    return any(_CALL.fullmatch(code[-size:]) for size in range(2, CALL_BYTES + 1))


def prologue(code: bytes, frame_bytes: int) -> Optional[Prologue]:
    """None: it is none that is known, or makes a frame of another size.

    Args:
        code: a method's, up to where its frame is complete.
        frame_bytes: with the return address and the caller's frame pointer.
    """
    for found in _PUSHES.finditer(code):
        if _room(found) == frame_bytes - 16:
            return Prologue(found.start() + 1, found.end(), found.end())
    for found in _MOVES.finditer(code):
        if _room(found) == frame_bytes - 8:
            has_room = max(found.end("room"), found.end("room_long"))
            return Prologue(-1, has_room, found.end())
    return None


def left_bytes(code: bytes, at: int, frame_bytes: int) -> int:
    """How much of a frame is left where a method returns: 16, 8; 0: it returns not there yet.

    Args:
        code: a piece of it, `at`: of the next instruction in that.
    """
    for found in _ADD.finditer(code, max(0, at - EPILOGUE_BYTES)):
        if _room(found) == frame_bytes - 16:
            left = _left_behind(code, at, found.end())
            if left:
                return left
    if frame_bytes == 16 and code[at : at + 1] == _POP and _left_behind(code, at, at + 1):
        return 16
    return 8 if _has_left(code, at) else 0


def _has_left(code: bytes, at: int) -> bool:
    for found in _LEAVE.finditer(code, max(0, at - EPILOGUE_BYTES)):
        places = (found.start() + 1, found.end("asks"), found.end("leaves"))
        if at in places and code[found.end() : found.end() + 1] == _RETURN:
            return True
    return False


def _left_behind(code: bytes, at: int, popped: int) -> int:
    """Of what gives the frame back, up to the frame pointer before `popped`."""
    returns, places = popped, [popped]
    poll = _POLL.match(code, popped)
    if poll is not None:
        returns = poll.end()
        places += [end for end in (poll.end("asks"), poll.end("loads"), returns) if end > 0]
    if code[returns : returns + 1] != _RETURN:
        return 0
    if at == popped - 1:
        return 16
    return 8 if at in places else 0


def _room(found: Match[bytes]) -> int:
    """How far the instruction moves the stack pointer."""
    short, long = found["room"], found["room_long"]
    return int((_SHORT.unpack(short) if short else _LONG.unpack(long))[0])
