"""Where the HotSpot of a process keeps its code and methods, JDK 8 to 27."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.java.vm_structs import Field, VmStructs, VmTables

NOT_TOLD = -1
OLDEST, NEWEST = 9, 27
"""Of the versions that are known; JDK 8 is told by its only heap of code."""

_OFFSET_MAX = 4096
# The first that is told. In JDK 9 nmethod got a base type, which it lost again in 23.
_FIELDS: Dict[str, Tuple[str, ...]] = {
    "array_length": ("GrowableArrayBase._len", "GenericGrowableArray._len"),
    "array_data": ("GrowableArray<int>._data",),
    "heap_memory": ("CodeHeap._memory",),
    "heap_segments": ("CodeHeap._segmap",),
    "heap_segment_log2": ("CodeHeap._log2_segment_size",),
    "space_low": ("VirtualSpace._low_boundary",),
    "space_high": ("VirtualSpace._high_boundary",),
    "block_used": ("HeapBlock::Header._used",),
    "blob_name": ("CodeBlob._name",),
    "blob_bytes": ("CodeBlob._size",),
    "blob_frame_words": ("CodeBlob._frame_size",),
    "blob_frame_complete": ("CodeBlob._frame_complete_offset",),
    "method": ("nmethod._method", "CompiledMethod._method"),
    "compile_id": ("nmethod._compile_id",),
    "original_pc": ("nmethod._orig_pc_offset",),
    "const_method": ("Method._constMethod",),
    "constants": ("ConstMethod._constants",),
    "code_bytes": ("ConstMethod._code_size",),
    "method_name": ("ConstMethod._name_index",),
    "method_flags": ("ConstMethod._flags", "ConstMethod._flags._flags"),
    "pool_tags": ("ConstantPool._tags",),
    "pool_length": ("ConstantPool._length",),
    "pool_holder": ("ConstantPool._pool_holder",),
    "tags_data": ("Array<u1>._data",),
    "class_name": ("Klass._name",),
    "symbol_body": ("Symbol._body",),
    "queue_codelets": ("StubQueue._stub_buffer",),
    "queue_end": ("StubQueue._queue_end",),
    "codelet_bytes": ("InterpreterCodelet._size",),
    "codelet_text": ("InterpreterCodelet._description",),
}
# Each is told by some versions only.
_SOME: Dict[str, Tuple[str, ...]] = {
    "code_begin": ("CodeBlob._code_begin",),
    "code_end": ("CodeBlob._code_end",),
    "code_begin_offset": ("CodeBlob._code_offset",),
    "code_end_offset": ("CodeBlob._data_offset",),
    "deoptimized": ("CompiledMethod._deopt_handler_begin",),
    "deoptimized_offset": (
        "nmethod._deopt_handler_offset",
        "nmethod._deopt_handler_entry_offset",
        "nmethod._deoptimize_offset",
    ),
    "symbol_length": ("Symbol._length",),
    "symbol_length_and_count": ("Symbol._length_and_refcount",),
    "pcs": ("nmethod._scopes_pcs_offset",),
    "scopes": ("CompiledMethod._scopes_data_begin",),
    "scopes_offset": ("nmethod._scopes_data_offset",),
    "dependencies": ("nmethod._dependencies_offset",),
    "immutable": ("nmethod._immutable_data",),
    "metadata": ("nmethod._metadata_offset",),
    "mutable": ("CodeBlob._mutable_data",),
    "relocation_bytes": ("CodeBlob._relocation_size",),
    "pc_place": ("PcDesc._pc_offset",),
    "pc_scope": ("PcDesc._scope_decode_offset",),
    "pool_file": ("ConstantPool._source_file_name_index",),
    "class_file": ("InstanceKlass._source_file_name_index",),
}
_STATICS = {
    "heap": "CodeCache._heap",
    "heaps": "CodeCache._heaps",
    "interpreter": "AbstractInterpreter._code",
    "major": "Abstract_VM_Version._vm_major_version",
}
_SIZES = {
    "block_size": b"HeapBlock",
    "const_method_size": b"ConstMethod",
    "pool_size": b"ConstantPool",
    "codelet_size": b"InterpreterCodelet",
    "pc_size": b"PcDesc",
}
# src/hotspot/cpu/x86/frame_x86.hpp, in words; JDK 8 does not tell them, and has the same.
_FRAME = {
    b"frame::interpreter_frame_sender_sp_offset": -1,
    b"frame::interpreter_frame_last_sp_offset": -2,
    b"JVM_CONSTANT_Utf8": 1,
}
_LENGTH_HIGH_BYTES = 2


class Layout(NamedTuple):
    """Offsets and sizes in bytes; `heap` to `major` are addresses; `NOT_TOLD` of some.

    Attributes:
        heap: of a pointer to the only heap of code; heaps: of a pointer to the list of them.
        interpreter: of a pointer to the queue of the interpreter's codelets.
        major: of the number of the version; in JDK 8 it is another one, and `heap` is there.
        code_begin_offset: of where a blob's code begins, itself an offset; `code_begin` is of an
            address. So are the others that end so.
        symbol_length: of 16 bits.
    """

    heap: int
    heaps: int
    interpreter: int
    major: int
    array_length: int
    array_data: int
    heap_memory: int
    heap_segments: int
    heap_segment_log2: int
    space_low: int
    space_high: int
    block_used: int
    block_size: int
    blob_name: int
    blob_bytes: int
    blob_frame_words: int
    blob_frame_complete: int
    code_begin: int
    code_end: int
    code_begin_offset: int
    code_end_offset: int
    method: int
    compile_id: int
    deoptimized: int
    deoptimized_offset: int
    original_pc: int
    pcs: int
    pc_size: int
    pc_place: int
    pc_scope: int
    scopes: int
    scopes_offset: int
    dependencies: int
    immutable: int
    metadata: int
    mutable: int
    relocation_bytes: int
    const_method: int
    const_method_size: int
    constants: int
    code_bytes: int
    method_name: int
    method_flags: int
    pool_tags: int
    pool_length: int
    pool_holder: int
    pool_size: int
    pool_file: int
    tags_data: int
    class_name: int
    class_file: int
    symbol_body: int
    symbol_length: int
    queue_codelets: int
    queue_end: int
    codelet_size: int
    codelet_bytes: int
    codelet_text: int


def layout_of(exported: Mapping[bytes, int], memory: ProcessMemory) -> Optional[Layout]:
    """Of a process; None where its HotSpot does not tell all of it.

    Args:
        exported: where it has the symbols of libjvm that begin with `HOTSPOT_PREFIX`.

    Raises:
        OSError: the process's memory cannot be read, or there are no tables.
    """
    names = [name for each in (*_FIELDS.values(), *_SOME.values()) for name in each]
    fields = {_field(name) for name in (*names, *_STATICS.values())}
    told = VmTables(exported, memory).read(fields, _SIZES.values(), _FRAME)
    if any(told.constants.get(name, value) != value for name, value in _FRAME.items()):
        return None
    found = {name: told.places.get(_field(name_), NOT_TOLD) for name, name_ in _STATICS.items()}
    found.update((name, told.sizes.get(kind, NOT_TOLD)) for name, kind in _SIZES.items())
    offsets = {name: _first(told, names) for name, names in {**_FIELDS, **_SOME}.items()}
    has_code = max(found["heaps"], found["heap"]) > 0
    if not has_code or not _is_whole(offsets, found):
        return None
    packed = offsets.pop("symbol_length_and_count")
    if offsets["symbol_length"] == NOT_TOLD:
        # JDK 12 to 15: the upper half of the word.
        offsets["symbol_length"] = packed + _LENGTH_HIGH_BYTES
    layout = Layout(**found, **offsets)
    return layout if _is_known(layout, memory) else None


def _is_known(layout: Layout, memory: ProcessMemory) -> bool:
    if layout.heaps == NOT_TOLD:
        return True
    if layout.major == NOT_TOLD:
        return False
    major = memory.number(layout.major)
    return bool(OLDEST <= major <= NEWEST)


def _field(name: str) -> Field:
    kind, _, field = name.partition(".")
    return kind.encode(), field.encode()


def _first(told: VmStructs, names: Tuple[str, ...]) -> int:
    return next((told.places[_field(each)] for each in names if _field(each) in told.places), -1)


def _is_whole(offsets: Mapping[str, int], found: Mapping[str, int]) -> bool:
    """All that it needs is told, and is so small as an offset is."""
    needed = [offsets[name] for name in _FIELDS] + [found[name] for name in _SIZES]
    pairs = (
        ("code_begin", "code_begin_offset"),
        ("code_end", "code_end_offset"),
        ("symbol_length", "symbol_length_and_count"),
    )
    needed += [max(offsets[one], offsets[other]) for one, other in pairs]
    are_offsets = all(NOT_TOLD <= each <= _OFFSET_MAX for each in offsets.values())
    is_told = all(0 <= each <= _OFFSET_MAX for each in needed)
    return are_offsets and is_told and found["interpreter"] > 0
