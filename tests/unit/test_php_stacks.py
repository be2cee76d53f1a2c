"""Where PHP keeps what it executes, and its functions between those of C."""

from __future__ import annotations

import random
import struct
from typing import Dict, List, Optional

import pytest

from udsprobe.kernel.stacks.php_frames import PhpLayout
from udsprobe.symbols.php.offsets import layout_of
from udsprobe.symbols.php.stacks import MADE, Call, merged
from udsprobe.symbols.process_names import JIT, CodeFrame

# ------------------------------------------------------------ code

CODE, GLOBALS, GOT = 0x40_0000, 0x60_0000, 0x50_0000
CURRENT, FILE = 0x1E8, 0x98


def far(opcode: bytes, number: int) -> bytes:
    return opcode + struct.pack("<i", number)


def by_ip(opcode: bytes, target: int) -> bytes:
    """The first instruction of a function."""
    return far(opcode, target - CODE - len(opcode) - 4)


FUNC, SCOPE, PREVIOUS = b"\x48\x8b\x50\x18", b"\x48\x8b\x4a\x10", b"\x48\x8b\x40\x30"
# test rax, rax; je; as all of them have it
BETWEEN = b"\x48\x85\xc0\x74\x25"
BEGINS: Dict[str, bytes] = {
    "lea": by_ip(b"\x48\x8d\x05", GLOBALS) + far(b"\x48\x8b\x80", CURRENT),
    "at once": by_ip(b"\x48\x8b\x05", GLOBALS + CURRENT),
    "by the table of a library": by_ip(b"\x48\x8b\x05", GOT) + far(b"\x48\x8b\x80", CURRENT),
    "at an address": far(b"\x48\x8b\x04\x25", GLOBALS + CURRENT),
}


def scope(begins: bytes) -> bytes:
    return begins + BETWEEN + FUNC + SCOPE + PREVIOUS + b"\xc3"


def filename(begins: bytes, override: bytes = b"") -> bytes:
    return begins + override + BETWEEN + FUNC + PREVIOUS + far(b"\x48\x8b\x82", FILE) + b"\xc3"


def word(address: int) -> int:
    if address != GOT:
        raise OSError("nothing is there")
    return GLOBALS


def found(in_scope: bytes, in_filename: bytes) -> Optional[PhpLayout]:
    return layout_of(GLOBALS, (in_scope, CODE), (in_filename, CODE), word)


@pytest.mark.parametrize("begins", BEGINS.values(), ids=list(BEGINS))
def test_the_places_are_found_in_code(begins: bytes) -> None:
    expected = PhpLayout(GLOBALS + CURRENT, FILE)
    assert found(scope(begins), filename(begins)) == expected
    # From 8.3 on the engine may say another file.
    override = far(b"\x48\x8b\x82", 0x6B0)
    assert found(scope(begins), filename(begins, override)) == expected


@pytest.mark.parametrize(
    ("in_scope", "in_filename"),
    [
        (scope(BEGINS["lea"]).replace(PREVIOUS, b""), filename(BEGINS["lea"])),
        (scope(BEGINS["lea"]).replace(FUNC, b""), filename(BEGINS["lea"])),
        (scope(BEGINS["lea"]), scope(BEGINS["lea"])),
        (scope(BEGINS["lea"]), filename(BEGINS["lea"], far(b"\x48\x8b\x82", FILE + 8))),
        (scope(far(b"\x48\x8b\x80", CURRENT)), filename(BEGINS["lea"])),
        (scope(BEGINS["lea"] + far(b"\x48\x8b\x80", CURRENT + 8)), filename(BEGINS["lea"])),
        (scope(far(b"\x48\x8b\x80", CURRENT + 4)), filename(BEGINS["lea"])),
        (scope(BEGINS["lea"]), b""),
    ],
)
def test_other_code_tells_nothing(in_scope: bytes, in_filename: bytes) -> None:
    assert found(in_scope, in_filename) is None


def test_any_bytes_do_no_harm() -> None:
    noise = random.Random(1)
    for size in range(300):
        code = noise.randbytes(size)
        assert layout_of(GLOBALS, (code, CODE), (code, CODE), lambda at: 0) is None


# ------------------------------------------------------------ stacks

PHP = "php8.2"
F, G, H = (CodeFrame(name, PHP, "/srv/app.php", 1) for name in "fgh")
MATCH, SORT = (CodeFrame(name, PHP, "php:internal") for name in ("preg_match", "usort"))


def c(function: Optional[str], module: str = PHP) -> CodeFrame:
    return CodeFrame(function, module)


def call(*frames: CodeFrame) -> Call:
    return Call(list(frames), frames[-1].file == "php:internal", frames[0].file == "php:internal")


EXECUTE, CALLS, ROOT = c("execute_ex"), c("zend_call_function"), c("_start")
NONE, PCRE = c(None), c("pcre2_match_8", "libpcre2-8.so.0")


@pytest.mark.parametrize(
    ("native", "calls", "expected"),
    [
        pytest.param([EXECUTE, ROOT], [call(F, G)], [F, G, ROOT], id="one call"),
        pytest.param(
            [PCRE, NONE, NONE, EXECUTE, ROOT], [call(MATCH, F)], [PCRE, MATCH, F, ROOT],
            id="in C that has no names",
        ),
        pytest.param(
            [PCRE, c("zif_preg_match"), EXECUTE, ROOT], [call(MATCH, F)], [PCRE, MATCH, F, ROOT],
            id="in C that has names",
        ),
        pytest.param(
            [c(None, "curl.so"), EXECUTE, ROOT], [call(MATCH, F)], [MATCH, F, ROOT],
            id="in an extension",
        ),
        pytest.param(
            [c(None, "other.so"), EXECUTE, ROOT], [call(F)], [c(None, "other.so"), F, ROOT],
            id="of another library",
        ),
        pytest.param(
            [c("execute_ex.cold"), EXECUTE, ROOT], [call(F), call(G)], [F, G, ROOT],
            id="each execution is a call",
        ),
        pytest.param(
            [c("ZEND_ADD_SPEC_CV_CV_HANDLER"), EXECUTE, ROOT], [call(F)], [F, ROOT],
            id="instructions are functions",
        ),
        pytest.param(
            [EXECUTE, CALLS, NONE, c("zend_sort"), NONE, EXECUTE, ROOT],
            [call(F), call(SORT, G)],
            [F, CALLS, NONE, c("zend_sort"), SORT, G, ROOT],
            id="called back",
        ),
        pytest.param(
            [PCRE, NONE, CALLS, c("zend_sort"), NONE, EXECUTE, ROOT],
            [call(MATCH), call(SORT, G)],
            [PCRE, MATCH, CALLS, c("zend_sort"), SORT, G, ROOT],
            id="called back in C",
        ),
        pytest.param([MADE], [call(F), call(G)], [F, G], id="made code ends the stack"),
        pytest.param([MADE, EXECUTE, ROOT], [call(F)], [F, ROOT], id="made code"),
        pytest.param(
            [c(None, JIT)], [call(MATCH, F)], [MATCH, F], id="made by the library",
        ),
        pytest.param(
            [PCRE, NONE], [call(MATCH, F), call(G)], [PCRE, MATCH, F, G],
            id="callers are not found",
        ),
        pytest.param([c("x", "[kernel]")], [call(F)], [c("x", "[kernel]"), F], id="no stack"),
        pytest.param(
            [EXECUTE, CALLS, EXECUTE, ROOT], [call(F, G, H)], [F, G, H, ROOT],
            id="other calls than executions",
        ),
    ],
)  # fmt: skip
def test_functions_of_php_are_where_c_executes_them(
    native: List[CodeFrame], calls: List[Call], expected: List[CodeFrame]
) -> None:
    assert merged(native, calls, PHP) == expected
