"""How V8 keeps what an async function is when it waits.

Types and most offsets are exported (`v8dbg_`, as in `symbols.v8.layouts`); what is behind the head
of an object is by src/objects/js-generator.tq, js-promise.tq and promise.tq of V8 10.2 to 14.1
(Node 18 to 25), where it is the same.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

FIELDS: Dict[str, Tuple[bytes, ...]] = {
    "async_type": (b"type_JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT_TYPE",),
    "async_generator_type": (b"type_JSAsyncGeneratorObject__JS_ASYNC_GENERATOR_OBJECT_TYPE",),
    "promise_type": (b"type_JSPromise__JS_PROMISE_TYPE",),
    "reaction_type": (b"type_PromiseReaction__PROMISE_REACTION_TYPE",),
    "capability_type": (b"type_PromiseCapability__PROMISE_CAPABILITY_TYPE",),
    "object_type": (b"type_JSObject__JS_OBJECT_TYPE",),
    "map_of_map_type": (b"type_Map__MAP_TYPE",),
    "fixed_array_type": (b"type_FixedArray__FIXED_ARRAY_TYPE",),
    "properties_type": (b"type_PropertyArray__PROPERTY_ARRAY_TYPE",),
    "function_context": (b"class_JSFunction__context__",),
    "map_words": (b"class_Map__instance_size_in_words__char",),
    "map_constructor": (b"class_Map__constructor_or_back_pointer__",),
    "head_bytes": (b"class_JSObject__internal_fields__uintptr_t",),
    "properties": (b"class_JSReceiver__raw_properties_or_hash__",),
}


class AwaitsLayout(NamedTuple):
    """Offsets in bytes, and types of objects; `head_bytes`: of any object of JavaScript."""

    async_type: int
    async_generator_type: int
    promise_type: int
    reaction_type: int
    capability_type: int
    object_type: int
    map_of_map_type: int
    fixed_array_type: int
    properties_type: int
    function_context: int
    map_words: int
    map_constructor: int
    head_bytes: int
    properties: int
