"""What the stack sampler hands over, record by record."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from udsprobe.kernel.stacks.php_frames import PhpFrame
from udsprobe.kernel.stacks.python_frames import PythonFrame
from udsprobe.kernel.stacks.ruby_frames import RubyFrame, ruby_frame
from udsprobe.kernel.stacks.v8_frames import V8Frame


class Registers(NamedTuple):
    """Of the program when it was interrupted, or entered the kernel; all 0 when not known.

    Attributes:
        x86: of x86-64 all, by their numbers in DWARF.
    """

    ip: int
    sp: int
    fp: int
    link: int
    x86: Tuple[int, ...] = ()


class RawStack(NamedTuple):
    """One stack.

    Attributes:
        kernel: addresses in the kernel, the innermost first; empty when it ran its own code.
        user: of the program, found by frame pointers: beyond the first not certain.
        memory: the program's, from 128 bytes below `registers.sp` on.
        call: number of the system call that it is in; below 0: none.
        is_owing: its process had requests to answer; said of what ran.
        python: frames of CPython, the innermost first; v8: those of V8; php: those of PHP;
            ruby: those of Ruby.
    """

    pid: int
    tid: int
    kernel: Tuple[int, ...]
    user: Tuple[int, ...]
    registers: Registers
    memory: bytes
    call: int = -1
    is_owing: bool = False
    python: Tuple[PythonFrame, ...] = ()
    v8: Tuple[V8Frame, ...] = ()
    php: Tuple[PhpFrame, ...] = ()
    ruby: Tuple[RubyFrame, ...] = ()


Wait = Tuple[int, int]
"""Names one: the thread's id on the host, and when it began."""


class SleepBegan(NamedTuple):
    """A thread fell asleep there; `is_owing`: its process had requests to answer."""

    wait: Wait
    is_owing: bool
    stack: RawStack


class SleepTime(NamedTuple):
    """How long a sleep was, or has been so far."""

    wait: Wait
    ns: int
    has_ended: bool


class Untold(NamedTuple):
    """Sleeps in one call, at one address, whose stacks were not taken, since the beginning."""

    pid: int
    call: int
    ip: int
    waits: int
    ns: int
    owing_ns: int


Event = Union[RawStack, SleepBegan, SleepTime]


class HeldStack(NamedTuple):
    """A record with a stack, as it came: the objects that it is made into take as much again."""

    pid: int
    pieces: Tuple[bytes, ...]
    records: Records

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        return sum(map(len, self.pieces))

    def event(self) -> Event:
        """What it tells."""
        return self.records.made(self.pieces)


Held = Union[Event, HeldStack]


class Came(NamedTuple):
    """What came since the last time, and the sums of what was not told."""

    events: List[Held]
    untold: List[Untold]


def event_of(held: Held) -> Event:
    """Itself, unless it is still as it came."""
    return held.event() if isinstance(held, HeldStack) else held


def pid_of(held: Held) -> Optional[int]:
    """Whose stack it is; None: it only tells a time."""
    if isinstance(held, SleepTime):
        return None
    return held.stack.pid if isinstance(held, SleepBegan) else held.pid


# Of a record, in its order: what says how far each is filled, by elements or by bytes.
_LISTS = (
    ("v8_frames", "v8_count"),
    ("python_frames", "python_count"),
    ("php_frames", "php_count"),
    ("ruby_frames", "ruby_count"),
    ("kernel_frames", "kernel_frames_bytes"),
    ("user_frames", "user_frames_bytes"),
    ("copy", "copy_bytes"),
)


class Records:
    """Reads them.

    Args:
        layout: of `struct stack_sample`.
        kinds: of `enum stack_record`.
    """

    def __init__(self, layout: Any, kinds: Any) -> None:
        self._layout = layout
        self._began, self._ended = kinds["RECORD_WAIT_BEGAN"], kinds["RECORD_WAIT_ENDED"]
        self._goes_on = kinds["RECORD_WAIT_GOES_ON"]
        types, self._lists = dict(layout._fields_), []
        for name, filled in _LISTS:
            place = getattr(layout, name)
            each_bytes = ctypes.sizeof(types[name]._type_) if filled.endswith("_count") else 1
            self._lists.append((place.offset, place.size, filled, each_bytes))

    def at(self, address: int) -> Held:
        """Of the ring: its fields behind `ns` are there unless it only tells a time."""
        header = self._layout.from_address(address)
        if header.record in (self._ended, self._goes_on):
            wait = (header.thread, header.began_ns)
            return SleepTime(wait, header.ns, header.record == self._ended)
        pieces = tuple(ctypes.string_at(address + at, size) for at, size in self._used(header))
        return HeldStack(header.tgid, pieces, self)

    def made(self, pieces: Tuple[bytes, ...]) -> Event:
        """Of `HeldStack.pieces`."""
        header = self._layout.from_buffer_copy(pieces[0].ljust(ctypes.sizeof(self._layout), b"\0"))
        for (at, size), piece in zip(self._used(header), pieces):
            ctypes.memmove(ctypes.addressof(header) + at, piece, size)
        stack = self.stack(header, pieces[-1])
        wait = (header.thread, header.began_ns)
        return SleepBegan(wait, bool(header.is_owing), stack) if self._is_sleep(header) else stack

    def _used(self, header: Any) -> List[Tuple[int, int]]:
        """Where its parts begin, and their bytes: what is before all lists, each of these as far as
        it is filled, the memory last."""
        lists = [
            (at, min(getattr(header, filled) * each_bytes, most_bytes))
            for at, most_bytes, filled, each_bytes in self._lists
        ]
        return [(0, self._lists[0][0]), *lists]

    def stack(self, header: Any, memory: bytes) -> RawStack:
        """Of a record that has one."""
        kernel, user = header.kernel_frames_bytes // 8, header.user_frames_bytes // 8
        return RawStack(
            pid=header.tgid,
            tid=header.tid,
            kernel=tuple(header.kernel_frames[:kernel]),
            user=tuple(header.user_frames[:user]),
            registers=Registers(header.ip, header.sp, header.fp, header.link, tuple(header.x86)),
            memory=memory,
            call=header.call,
            is_owing=bool(header.is_owing),
            python=tuple(map(_python_frame, header.python_frames[: header.python_count])),
            v8=tuple(map(_v8_frame, header.v8_frames[: header.v8_count])),
            php=tuple(map(_php_frame, header.php_frames[: header.php_count])),
            ruby=tuple(map(_ruby_frame, header.ruby_frames[: header.ruby_count])),
        )

    def _is_sleep(self, header: Any) -> bool:
        return bool(header.record == self._began)


def _v8_frame(frame: Any) -> V8Frame:
    return V8Frame(frame.fp, frame.shared, frame.caller)


def _php_frame(frame: Any) -> PhpFrame:
    return PhpFrame(frame.function & ~1, frame.mark, bool(frame.function & 1))


def _ruby_frame(frame: Any) -> RubyFrame:
    return ruby_frame(frame.function, frame.mark, frame.method)


def _python_frame(frame: Any) -> PythonFrame:
    return PythonFrame(frame.code & ~1, frame.name, bool(frame.code & 1))
