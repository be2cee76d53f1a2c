"""Which methods a compiler has put into the code of another, by what HotSpot keeps of that code.

It knows that where a method calls, and where it may stop at a safepoint: PcDesc and ScopeDesc of
src/hotspot/share/code/pcDesc.hpp, scopeDesc.cpp and nmethod.hpp. Of any other instruction it is not
told.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Dict, List, Optional, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.java.code_cache import Blob
from udsprobe.symbols.java.compressed import compressed, skipped_of
from udsprobe.symbols.java.layouts import NOT_TOLD, Layout

INLINED_MAX = 100
"""Methods at one place."""

_TABLE_BYTES_MAX, _BLOBS_MAX, _PLACES_MAX = 4 << 20, 1_000, 20_000
_SCOPE_BYTES = 15
_NUMBER = struct.Struct("<i")


class InlinedMethods:
    """Of one process. Tables of a piece of code are read once: they are its own."""

    def __init__(self, layout: Layout, memory: ProcessMemory) -> None:
        self._layout, self._memory = layout, memory
        self._scopes: Dict[Blob, Dict[int, int]] = {}
        self._known: Dict[Tuple[Blob, int], Tuple[int, ...]] = {}

    def at(self, blob: Blob, address: int) -> Tuple[int, ...]:
        """Addresses of the methods there, the innermost first; none where it is not told.

        Args:
            blob: of a compiled method.
            address: behind a call, or of an instruction that may stop.
        """
        key = (blob, address)
        if key not in self._known:
            if len(self._known) >= _PLACES_MAX:
                self._known.clear()
            self._known[key] = ()
            with suppress(OSError):
                scope = self._scopes_of(blob).get(address - blob.begin, 0)
                self._known[key] = self._methods(blob, scope) if scope > 0 else ()
        return self._known[key]

    def _scopes_of(self, blob: Blob) -> Dict[int, int]:
        """Place in the code → that of what is told of it."""
        if blob not in self._scopes:
            if len(self._scopes) >= _BLOBS_MAX:
                self._scopes.clear()
            self._scopes[blob] = {}
            self._scopes[blob] = self._read_scopes(blob)
        return self._scopes[blob]

    def _read_scopes(self, blob: Blob) -> Dict[int, int]:
        layout = self._layout
        begin, end = self._pcs(blob)
        size = layout.pc_size
        if layout.pc_place == NOT_TOLD or layout.pc_scope == NOT_TOLD:
            return {}
        if not 0 < end - begin <= _TABLE_BYTES_MAX:
            return {}
        raw = self._memory.read(begin, end - begin)
        places = range(0, len(raw) - size + 1, size)
        pairs = ((at + layout.pc_place, at + layout.pc_scope) for at in places)
        return {
            _NUMBER.unpack_from(raw, place)[0]: _NUMBER.unpack_from(raw, scope)[0]
            for place, scope in pairs
        }

    def _methods(self, blob: Blob, scope: int) -> Tuple[int, ...]:
        """A scope has the place of its caller's, which is before it, and its method."""
        begin, metadata = self._scopes_begin(blob), self._metadata(blob)
        if begin is None or metadata is None:
            return ()
        skipped = skipped_of(self._layout, self._memory)
        found: List[int] = []
        while scope and len(found) < INLINED_MAX:
            numbers = compressed(self._memory.read(begin + scope, _SCOPE_BYTES), skipped)
            caller, number = next(numbers), next(numbers)
            if not number or caller >= scope:
                return ()
            found.append(self._memory.word(metadata + 8 * (number - 1)))
            scope = caller
        # The outermost is the method that was compiled.
        return tuple(found) if found and found[-1] == blob.method else ()

    def _pcs(self, blob: Blob) -> Tuple[int, int]:
        """Where the table of places begins and ends."""
        layout = self._layout
        if layout.immutable != NOT_TOLD:
            kept = self._memory.word(blob.address + layout.immutable)
            return kept + self._told(blob, layout.pcs), kept + self._told(
                blob, layout.scopes_offset
            )
        end = self._told(blob, layout.dependencies)
        return blob.address + self._told(blob, layout.pcs), blob.address + end

    def _scopes_begin(self, blob: Blob) -> Optional[int]:
        layout = self._layout
        if layout.immutable != NOT_TOLD:
            kept = self._memory.word(blob.address + layout.immutable)
            return kept + self._told(blob, layout.scopes_offset)
        if layout.scopes != NOT_TOLD:
            return self._memory.word(blob.address + layout.scopes)
        return blob.address + self._told(blob, layout.scopes_offset)

    def _metadata(self, blob: Blob) -> Optional[int]:
        """In JDK 23 and 24 it is elsewhere: not known."""
        layout = self._layout
        if layout.mutable != NOT_TOLD:
            kept = self._memory.word(blob.address + layout.mutable)
            return kept + self._told(blob, layout.relocation_bytes)
        if layout.immutable != NOT_TOLD or layout.metadata == NOT_TOLD:
            return None
        return blob.address + self._told(blob, layout.metadata)

    def _told(self, blob: Blob, field: int) -> int:
        if field == NOT_TOLD:
            raise OSError("not told")
        place = blob.address + field
        return self._memory.number(place)
