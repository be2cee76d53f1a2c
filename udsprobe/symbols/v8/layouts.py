"""How the V8 of a program keeps functions, scripts and strings: it exports that for debuggers.

The names begin with `v8dbg_` (V8's tools/gen-postmortem-metadata.py). Node 18 to 24 have all.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.v8_frames import V8Layout
from udsprobe.symbols.elf_image import V8_PREFIX
from udsprobe.symbols.v8.awaits.layouts import FIELDS, AwaitsLayout

# Names end with a type, which versions change: the part before it tells the field.
_FIELDS: Dict[str, Tuple[bytes, ...]] = {
    "frame_context": (b"off_fp_context",),
    "frame_function": (b"off_fp_function",),
    "map_type": (b"class_Map__instance_type__uint16_t",),
    "function_type": (b"type_JSFunction__JS_FUNCTION_TYPE",),
    "function_shared": (b"class_JSFunction__shared__",),
    "shared_type": (b"type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",),
    "shared_name": (b"class_SharedFunctionInfo__name_or_scope_info__",),
    "shared_script": (
        b"class_SharedFunctionInfo__script_or_debug_info__",
        b"class_SharedFunctionInfo__script__",
    ),
    "script_type": (b"type_Script__SCRIPT_TYPE",),
    "script_name": (b"class_Script__name__",),
    "script_source": (b"class_Script__source__",),
    "scope_type": (b"type_ScopeInfo__SCOPE_INFO_TYPE",),
    "scope_locals": (b"scopeinfo_idx_ncontextlocals",),
    "scope_variables": (b"scopeinfo_idx_first_vars",),
    "string_types": (b"FirstNonstringType",),
    "string_encoding": (b"StringEncodingMask",),
    "string_shape": (b"StringRepresentationMask",),
    "string_cons": (b"ConsStringTag",),
    "string_thin": (b"ThinStringTag",),
    "string_length": (b"class_String__length__",),
    "string_letters": (b"class_SeqOneByteString__chars__",),
    "string_actual": (b"class_ThinString__actual__",),
    "string_first": (b"class_ConsString__first__",),
    "string_second": (b"class_ConsString__second__",),
    # Until Node 18 the object of some code has its instructions behind it; then they are in one of
    # their own.
    "stream_type": (b"type_InstructionStream__INSTRUCTION_STREAM_TYPE", b"type_Code__CODE_TYPE"),
    "code_type": (b"type_Code__CODE_TYPE",),
    "optimized_shared": (
        b"DeoptimizationDataSharedFunctionInfoIndex",
        b"DeoptimizationDataWrappedSharedFunctionInfoIndex",
    ),
    "optimized_literals": (b"DeoptimizationDataLiteralArrayIndex",),
    "optimized_inlined": (b"DeoptimizationDataInliningPositionsIndex",),
    "wrapper_type": (b"type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE",),
    "array_length": (b"class_FixedArrayBase__length__SMI",),
    "array_data": (b"class_FixedArray__data__uintptr_t",),
    "bytes_type": (b"type_ByteArray__BYTE_ARRAY_TYPE",),
    "trusted_bytes_type": (b"type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE",),
    "instructions": (b"class_Code__instruction_start__uintptr_t",),
}
# Node 18 does not tell the first three (src/objects/code.h), and has neither of the two types. From
# Node 20 on the object of some code points to its instructions.
_UNTOLD = {
    "optimized_shared": 6,
    "optimized_literals": 2,
    "optimized_inlined": 7,
    "wrapper_type": -1,
    "trusted_bytes_type": -1,
    "instructions": 0,
}


# Of types, and of offsets in objects: a process may tell anything.
_VALUE_MAX = 0xFFFF


class NamesLayout(NamedTuple):
    """Offsets in bytes, types of objects, and places in a scope's list of words."""

    map_type: int
    shared_type: int
    shared_name: int
    shared_script: int
    script_type: int
    script_name: int
    script_source: int
    scope_type: int
    scope_locals: int
    scope_variables: int
    string_types: int
    string_encoding: int
    string_shape: int
    string_cons: int
    string_thin: int
    string_length: int
    string_letters: int
    string_actual: int
    string_first: int
    string_second: int
    stream_type: int
    code_type: int
    optimized_shared: int
    optimized_literals: int
    optimized_inlined: int
    wrapper_type: int
    array_length: int
    array_data: int
    bytes_type: int
    trusted_bytes_type: int
    instructions: int


class Layout(NamedTuple):
    """Of one process; `awaits`: None where it does not tell all of that."""

    frames: V8Layout
    names: NamesLayout
    awaits: Optional[AwaitsLayout] = None


def layout_of(exported: Mapping[bytes, int], memory: ProcessMemory) -> Optional[Layout]:
    """Of a process; None where its V8 does not tell all of it.

    Args:
        exported: where it has the program's symbols, among them those that begin with `V8_PREFIX`.

    Raises:
        OSError: the process's memory cannot be read.
    """
    told = {**_UNTOLD, **_told(_FIELDS, exported, memory)}
    if not _FIELDS.keys() <= told.keys():
        return None
    frames = V8Layout(**{field: told[field] for field in V8Layout._fields})
    names = NamesLayout(**{field: told[field] for field in NamesLayout._fields})
    of_awaits = _told(FIELDS, exported, memory)
    is_known = all(0 <= of_awaits.get(field, -1) <= _VALUE_MAX for field in FIELDS)
    awaits = AwaitsLayout(**of_awaits) if is_known else None
    return Layout(frames, names, awaits)


def _told(
    fields: Mapping[str, Tuple[bytes, ...]], exported: Mapping[bytes, int], memory: ProcessMemory
) -> Dict[str, int]:
    """Those that are exported; OSError as `layout_of`."""
    found = {}
    for field, names in fields.items():
        address = next(filter(None, (_address(exported, name) for name in names)), None)
        if address is not None:
            found[field] = memory.number(address)
    return found


def _address(exported: Mapping[bytes, int], name: bytes) -> Optional[int]:
    name = V8_PREFIX + name
    if not name.endswith(b"__"):
        return exported.get(name)
    return next((exported[each] for each in sorted(exported) if each.startswith(name)), None)
