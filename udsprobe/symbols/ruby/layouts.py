"""How the Ruby of a process lays out what it runs, as found in its memory: no table by version.

Each thing is known by what it has to hold. The virtual machine is an object of Ruby's that points
back to it, its main thread points to it and to what it executes in, which points back to the
thread; control frames have one size that leads from the newest to the end of their stack, each with
a known kind; where code comes from are a path and two names, at the same place of each; the symbols
`*`, `+`, `-`, `/` are where their letters' codes say; the classes of the machine and of strings are
called RubyVM and String. Where one of these is not so, what rests on it is not known.

Source: vm_core.h, iseq.h, symbol.c, internal/class.h of Ruby 3.0 to 4.0.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.ruby_frames import (
    CONTEXT,
    CONTROL_FRAME,
    RubyFrame,
    RubyLayout,
    frames_in,
)
from udsprobe.symbols.ruby.objects import (
    ARRAY,
    CLASS_AT,
    DATA,
    STRING,
    WORD,
    ClassLayout,
    RubyClasses,
    RubyObjects,
    RubySymbols,
    is_address,
)

Version = Tuple[int, int]
OLDEST: Version = (3, 0)
"""Before, no thread-local word has what a thread executes in."""

_OLD_UNTIL: Version = (3, 1)
_FRAME_WORDS = (7, 8, 6, 9)
_KINDS = frozenset(
    (0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, 0x7777, 0x7888, 0x7999)
)  # VM_FRAME_MAGIC_...
_STACK_WORDS_MAX = 1 << 24
_CHECKED_FRAMES_MAX = 1000
# struct rb_vm_struct begins with `self`, main_thread is among the first; struct rb_thread_struct:
# `vm` is its fifth word, `ec` one of the next; rb_execution_context_t: thread_ptr.
_MACHINE_WORDS, _THREAD_WORDS, _VM_WORD, _CONTEXT_THREAD_WORD = 48, 8, 4, 6
_DATA_OBJECT_WORDS = 8
_BODY_WORDS = 40
_LABEL = 16
_CLASS_WORDS, _POINTED_WORDS = 40, 30
_SYMBOLS_MAX = 1 << 24
_OPERATORS = b"*+-/"


class NamesLayout(NamedTuple):
    """Where names are.

    Attributes:
        location: offset in bytes of `location` in the body of an instruction sequence.
        is_old: strings and lines are as until 3.1.
        classes: None: as until 3.1, or not known.
        symbols: address of `ruby_global_symbols`; None: not known.
    """

    location: int
    is_old: bool
    classes: Optional[ClassLayout]
    symbols: Optional[int]


class Layout(NamedTuple):
    """Of one process."""

    frames: RubyLayout
    names: NamesLayout


class _Machine(NamedTuple):
    """Addresses: its own, of its object, of the main thread's context; an offset in bytes."""

    address: int
    itself: int
    context: int
    thread_context: int


def layout_of(
    version: Version, module: int, data_at: int, data: bytes, memory: ProcessMemory
) -> Optional[Layout]:
    """None where it is another one than what is known, or runs nothing yet.

    Args:
        module: number of Ruby's thread-local words.
        data: its variables, from the address `data_at` on.
    """
    objects = RubyObjects(memory, is_old=version <= _OLD_UNTIL)
    words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
    machine = _machine(words, objects) if version >= OLDEST else None
    if machine is None:
        return None
    frame_bytes, frames = _frames(machine.context, memory)
    bodies = [each.mark for each in frames if each.function and not each.is_c]
    location = _location(bodies, objects)
    if not frame_bytes or location is None:
        return None
    context_thread = _CONTEXT_THREAD_WORD * WORD.size
    symbols = next(_symbols(words, data_at, objects), None)
    return Layout(
        RubyLayout(machine.address, module, machine.thread_context, context_thread, frame_bytes),
        NamesLayout(
            location,
            objects.is_old,
            _classes(machine.itself, bodies[0] + location + _LABEL, objects),
            symbols,
        ),
    )


def _machine(words: Sequence[int], objects: RubyObjects) -> Optional[_Machine]:
    """The first that is one, of those that its variables point to."""
    for at in dict.fromkeys(filter(is_address, words)):
        with suppress(OSError):
            (itself,) = objects.words(at, 1)
            if objects.type_of(itself) == DATA and at in objects.words(itself, _DATA_OBJECT_WORDS):
                found = _main_thread(at, itself, objects)
                if found is not None:
                    return found
    return None


def _main_thread(machine: int, itself: int, objects: RubyObjects) -> Optional[_Machine]:
    for thread in filter(is_address, objects.words(machine, _MACHINE_WORDS)):
        with suppress(OSError):
            words = objects.words(thread, _THREAD_WORDS)
            if words[_VM_WORD] != machine:
                continue
            for place in range(_VM_WORD + 1, _THREAD_WORDS):
                if _executes_for(words[place], thread, objects):
                    return _Machine(machine, itself, words[place], place * WORD.size)
    return None


def _executes_for(context: int, thread: int, objects: RubyObjects) -> bool:
    with suppress(OSError):
        at = context + _CONTEXT_THREAD_WORD * WORD.size
        return is_address(context) and objects.word(at) == thread
    return False


def _frames(context: int, memory: ProcessMemory) -> Tuple[int, Tuple[RubyFrame, ...]]:
    """The size of one in bytes, and those that there are now; 0: not known."""
    for words in _FRAME_WORDS:
        with suppress(OSError, struct.error, OverflowError):
            if _leads_to_end(context, words * WORD.size, memory):
                return words * WORD.size, frames_in(context, words * WORD.size, memory.read)
    return 0, ()


def _leads_to_end(context: int, frame_bytes: int, memory: ProcessMemory) -> bool:
    stack, words, at = CONTEXT.unpack(memory.read(context, CONTEXT.size))
    end = stack + words * WORD.size
    count, rest = divmod(end - at, frame_bytes)
    if not 0 < words < _STACK_WORDS_MAX or not stack < at < end or rest:
        return False
    for frame in range(at, at + min(count, _CHECKED_FRAMES_MAX) * frame_bytes, frame_bytes):
        environment = CONTROL_FRAME.unpack(memory.read(frame, CONTROL_FRAME.size))[4]
        (flags,) = WORD.unpack(memory.read(environment, WORD.size))
        if not flags & 1 or flags >> 16 not in _KINDS:
            return False
    return True


def _location(bodies: Sequence[int], objects: RubyObjects) -> Optional[int]:
    """The one place at which each has a path and two names."""
    found: Optional[Set[int]] = None
    for body in dict.fromkeys(bodies):
        with suppress(OSError):
            places = set(_places(objects.words(body, _BODY_WORDS), objects))
            found = places if found is None else found & places
    return found.pop() * WORD.size if found is not None and len(found) == 1 else None


def _places(words: Sequence[int], objects: RubyObjects) -> Iterator[int]:
    for place in range(len(words) - 3):
        path, plain, label = words[place : place + 3]
        with suppress(OSError):
            is_path = objects.type_of(path) in (STRING, ARRAY)
            if is_path and objects.string(label).endswith(objects.string(plain)):
                yield place


def _symbols(words: Sequence[int], data_at: int, objects: RubyObjects) -> Iterator[int]:
    """rb_symbols_t: how many there are, a table by names, the list by numbers, a hash."""
    for place in range(len(words) - 3):
        count, table, ids, others = words[place : place + 4]
        if not 256 < count & 0xFFFFFFFF < _SYMBOLS_MAX or not all(map(is_address, (table, ids))):
            continue
        at = data_at + place * WORD.size
        if is_address(others) and _names_operators(RubySymbols(objects, at)):
            yield at


def _names_operators(symbols: RubySymbols) -> bool:
    with suppress(OSError):
        return all(symbols.name(each) == bytes([each]) for each in _OPERATORS)
    return False


def _classes(machine: int, label_at: int, objects: RubyObjects) -> Optional[ClassLayout]:
    """Of the machine's and of strings' class, which have known names."""
    if objects.is_old:
        return None
    with suppress(OSError):
        values = machine, objects.word(label_at)
        of_machine, of_text = (objects.word(each + CLASS_AT) for each in values)
        found = [
            each
            for each in _class_layouts(of_text, b"String", objects)
            if RubyClasses(objects, RubySymbols(objects, None), each).path(of_machine) == b"RubyVM"
        ]
        return found[0]._replace(attached=_attached(found[0], of_text, objects)) if found else None
    return None


def _class_layouts(of: int, name: bytes, objects: RubyObjects) -> List[ClassLayout]:
    """Those by which this class has that name."""
    words = _there(of, _CLASS_WORDS, objects)
    found = [ClassLayout(None, at, None) for at in _offsets(words, name, objects)]
    for place, pointer in enumerate(words[2:8], 2):
        if is_address(pointer):
            pointed = _there(pointer, _POINTED_WORDS, objects)
            at_all = _offsets(pointed, name, objects)
            found += [ClassLayout(place * WORD.size, at, None) for at in at_all]
    return found


def _there(at: int, count: int, objects: RubyObjects) -> Tuple[int, ...]:
    """As many of these words as are in memory."""
    while count:
        with suppress(OSError):
            return objects.words(at, count)
        count //= 2
    return ()


def _offsets(words: Sequence[int], name: bytes, objects: RubyObjects) -> List[int]:
    found = []
    for place, word in enumerate(words):
        with suppress(OSError):
            if place and objects.string(word) == name:
                found.append(place * WORD.size)
    return found


def _attached(layout: ClassLayout, of: int, objects: RubyObjects) -> Optional[int]:
    """Where the singleton class of a class has it: the one word that is its address."""
    singleton = objects.word(of + CLASS_AT)
    begin = singleton if layout.pointer is None else objects.word(singleton + layout.pointer)
    words = objects.words(begin, layout.path // WORD.size)
    found = [place * WORD.size for place, word in enumerate(words) if word == of]
    return found[0] if len(found) == 1 else None
