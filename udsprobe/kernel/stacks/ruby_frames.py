"""Frames of Ruby in the memory of a process, as the sampler's programs follow them."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import List, NamedTuple, Tuple

from udsprobe.kernel.stacks.python_frames import Reader

FRAMES_MAX = 128
THREAD_WORDS = 64
"""Thread-local ones of Ruby that are looked at."""

CONTEXT = struct.Struct("<QQQ")
"""`rb_execution_context_t` (vm_core.h of Ruby 3.0 to 4.0) begins with its stack, the stack's size
in words, and the newest control frame."""

CONTROL_FRAME = struct.Struct("<QQQQQ")
"""`rb_control_frame_t` begins with pc, sp, iseq, self, ep."""

SEQUENCE_BODY = METHOD_DEFINITION = 16
"""Offsets of `body` in `rb_iseq_t`, and of `def` in `rb_method_entry_t`."""

TYPE_MASK = 0x1F
"""Of an object's flags: RUBY_T_MASK, include/ruby/internal/value_type.h."""

_DTV, _DTV_ENTRY_BYTES, _SCOPES_MAX = 8, 16, 16
_THREAD_MACHINE = 32
_WORD, _SCOPE = struct.Struct("<Q"), struct.Struct("<QQQ")
# internal/imemo.h, and VM_FRAME_... of vm_core.h.
_IMEMO, _IMEMO_SHIFT, _IMEMO_MASK = 0x1A, 12, 0xF
_SPECIAL_VARIABLES, _METHOD_ENTRY = 2, 6
_IS_LOCAL, _ENDS_CALL, _KIND_SHIFT, _CFUNC, _DUMMY = 2, 0x20, 16, 0x5555, 0x7999
_ENDS, _IS_C = 1, 2


class RubyLayout(NamedTuple):
    """`struct ruby_layout` of bpf/stacks.h: an address, a number, and offsets in bytes.

    Attributes:
        machine: of its virtual machine.
        module: by which the C library knows the file with Ruby's thread-local words.
        thread_context: in a thread of Ruby.
        context_thread: in what it executes in (`rb_execution_context_t`).
    """

    machine: int
    module: int
    thread_context: int
    context_thread: int
    frame_bytes: int


class RubyFrame(NamedTuple):
    """One of a stack.

    Attributes:
        function: address of its instruction sequence, or of the method entry of a method in C; 0:
            it is of none.
        mark: what that points to: its body, or the method's definition.
        method: address of the method entry that the code is of; 0: of none.
        ends_call: a function of C was called for it.
    """

    function: int
    mark: int
    method: int
    is_c: bool
    ends_call: bool


NO_FRAME = RubyFrame(0, 0, 0, False, False)


def ruby_frame(function: int, mark: int, method: int) -> RubyFrame:
    """Of `struct ruby_frame`."""
    is_c, ends_call = bool(function & _IS_C), bool(function & _ENDS)
    return RubyFrame(function & ~7, mark, method, is_c, ends_call)


def ruby_frames(layout: RubyLayout, pthread: int, read: Reader) -> Tuple[RubyFrame, ...]:
    """Of a thread that sleeps, the innermost first.

    Args:
        pthread: what pthread_self() returns in it.

    Raises:
        OSError, struct.error: the process's memory cannot be read.
        OverflowError: what was read there is no address.
    """
    context = _context(layout, pthread, read) if pthread else 0
    return frames_in(context, layout.frame_bytes, read) if context else ()


def frames_in(context: int, frame_bytes: int, read: Reader) -> Tuple[RubyFrame, ...]:
    """Of what executes in that context, the innermost first.

    Raises:
        OSError, struct.error, OverflowError: as `ruby_frames`.
    """
    stack, words, at = CONTEXT.unpack(read(context, CONTEXT.size))
    end = stack + words * _WORD.size
    found: List[RubyFrame] = []
    while stack <= at < end and len(found) < FRAMES_MAX:
        found.append(_frame(CONTROL_FRAME.unpack(read(at, CONTROL_FRAME.size)), read))
        at += frame_bytes
    return tuple(found)


def method_of(environment: int, read: Reader) -> int:
    """The method entry of what runs in an environment; 0: it is of none, or that cannot be read.
    See `ruby_method` of bpf/ruby_frames.bpf.h.
    """
    with suppress(OSError, OverflowError, struct.error):
        for _ in range(_SCOPES_MAX):
            method, outer, flags = _SCOPE.unpack(read(environment - 16, _SCOPE.size))
            found = _method_entry(method, read)
            if found or flags & _IS_LOCAL:
                return found
            environment = outer & ~3
    return 0


def _word(address: int, read: Reader) -> int:
    return int(_WORD.unpack(read(address, _WORD.size))[0])


def _context(layout: RubyLayout, pthread: int, read: Reader) -> int:
    """0: the thread is none of Ruby's."""
    entry = _word(pthread + _DTV, read) + layout.module * _DTV_ENTRY_BYTES
    words = _word(entry, read)
    for place in range(THREAD_WORDS):
        with suppress(OSError, OverflowError, struct.error):
            context = _word(words + place * _WORD.size, read)
            thread = _word(context + layout.context_thread, read) if context else 0
            is_back = thread and _word(thread + layout.thread_context, read) == context
            if is_back and _word(thread + _THREAD_MACHINE, read) == layout.machine:
                return context
    return 0


def _frame(raw: Tuple[int, ...], read: Reader) -> RubyFrame:
    instruction, _, sequence, _, environment = raw
    flags = _word(environment, read)
    kind = flags >> _KIND_SHIFT
    if kind == _CFUNC:
        method = method_of(environment, read)
        mark = _word(method + METHOD_DEFINITION, read) if method else 0
        return RubyFrame(method, mark, 0, True, False)
    if kind == _DUMMY or not sequence or not instruction:
        return NO_FRAME
    mark = _word(sequence + SEQUENCE_BODY, read)
    method = method_of(environment, read)
    return RubyFrame(sequence, mark, method, False, bool(flags & _ENDS_CALL))


def _method_entry(found: int, read: Reader) -> int:
    for _ in range(2):
        flags = _word(found, read) if found else 0
        kind = flags >> _IMEMO_SHIFT & _IMEMO_MASK
        if flags & TYPE_MASK != _IMEMO or kind not in (_SPECIAL_VARIABLES, _METHOD_ENTRY):
            return 0
        if kind == _METHOD_ENTRY:
            return found
        found = _word(found + 8, read)
    return 0
