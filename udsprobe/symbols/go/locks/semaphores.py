"""Which lock a goroutine waits for: by the semaphore that it is queued at.

Source: runtime/sema.go (semaRoot.queue), runtime2.go (sudog) of Go 1.19 to 1.26. Who waits has its
`sudog` on its stack: it begins with its `g`, and `elem` is the address of the semaphore, which is
on the stack as well. One that is out of the queue has no `elem`.
"""

from __future__ import annotations

import re
import struct
from typing import Callable, Dict, Optional, Sequence, Tuple

from udsprobe.symbols.go.goroutines import Parked
from udsprobe.symbols.go.locks.unlocking import Lock

# Of semacquire1 and what it was called by.
_WORDS_MAX = 96
_SUDOG, _G_AT, _ELEM_AT = struct.Struct("<5Q"), 0, (3, 4)
_ACQUIRES = re.compile(r"(internal/)?sync\.runtime_Semacquire(Mutex|RWMutexR?)")
_MUTEX, _SHARED = re.compile(r"(internal/)?sync\.\(\*Mutex\)\.lockSlow"), "sync.(*RWMutex)."
# sync.Mutex: state, sema. sync.RWMutex: w Mutex, writerSem, readerSem.
_MUTEX_AT, _WRITER_AT, _READER_AT = 4, 8, 12
_BEHIND, _PLACE_FUNCTIONS, _PLACES_MAX = 4, 6, 1000


class Semaphores:
    """Of one process.

    Args:
        read: address, size in bytes → memory; raises OSError.
        below: bytes below a stack pointer that were copied, too.
    """

    def __init__(self, read: Callable[[int, int], bytes], below: int) -> None:
        self._read, self._below = read, below
        # Where on a stack: the same for all that wait in one place.
        self._slots: Dict[Tuple[str, ...], int] = {}

    def lock_of(self, one: Parked, functions: Sequence[str]) -> Optional[Lock]:
        """What it waits for; None: for no lock of package sync, or it is not known for which.

        Args:
            functions: of its stack, the innermost first.
        """
        found = _place(functions)
        if found is None or one.is_in_call:
            return None
        words = _words(one.memory[self._below :])
        semaphore = self._semaphore(one, words, tuple(functions[:_PLACE_FUNCTIONS]))
        if semaphore is None:
            return None
        before, has_readers = found
        return Lock(semaphore - before, has_readers)

    def _semaphore(
        self, one: Parked, words: Sequence[int], place: Tuple[str, ...]
    ) -> Optional[int]:
        likely = self._slots.get(place, 0)
        slots = range(len(words))
        for slot in (likely, *slots) if likely < len(words) else slots:
            found = self._elem(words[slot], one.address, words)
            if found is not None:
                self._remember(place, slot)
                return found
        return None

    def _remember(self, place: Tuple[str, ...], slot: int) -> None:
        if len(self._slots) >= _PLACES_MAX:
            self._slots.clear()
        self._slots[place] = slot

    def _elem(self, address: int, goroutine: int, words: Sequence[int]) -> Optional[int]:
        if address % 8 or not address:
            return None
        try:
            sudog = _SUDOG.unpack(self._read(address, _SUDOG.size))
        except OSError:
            return None
        if sudog[_G_AT] != goroutine:
            return None
        found = (sudog[at] for at in _ELEM_AT)
        return next((each for each in found if each and not each % 4 and each in words), None)


def _words(memory: bytes) -> Tuple[int, ...]:
    count = min(_WORDS_MAX, len(memory) // 8)
    return struct.unpack_from(f"<{count}Q", memory)


def _place(functions: Sequence[str]) -> Optional[Tuple[int, bool]]:
    """How far behind its begin the lock's semaphore is, and whether it is an RWMutex."""
    at = next((at for at, name in enumerate(functions) if _ACQUIRES.fullmatch(name)), None)
    if at is None:
        return None
    callers = list(functions[at + 1 : at + 1 + _BEHIND])
    if any(map(_MUTEX.fullmatch, callers[:1])):
        return _MUTEX_AT, any(name == f"{_SHARED}Lock" for name in callers)
    if functions[at].endswith("RWMutexR") or callers[:1] == [f"{_SHARED}RLock"]:
        return _READER_AT, True
    return (_WRITER_AT, True) if callers[:1] == [f"{_SHARED}Lock"] else None
