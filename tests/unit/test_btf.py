"""BTF: layouts of the built object as C has them, and damage that is refused."""

from __future__ import annotations

import ctypes
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import give_up
from tests.elf import section
from udsprobe.kernel.abilities.syscall_table import TRAITS, URING
from udsprobe.kernel.objects.btf import KIND_DATASEC, KIND_ENUM, KIND_STRUCT, Btf, BtfError
from udsprobe.kernel.tables import listener_table
from udsprobe.model import histogram

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "bpf" / "udsprobe.h").read_text()
STRUCTS = re.findall(r"^struct (\w+) \{", HEADER, re.MULTILINE)
ENUMS = re.findall(r"^enum (\w+) \{", HEADER, re.MULTILINE)

CTYPES = {"u64_t": 8, "ns_t": 8, "bytes_t": 8, "count_t": 8, "address_t": 8}
CTYPES.update({"int": 4, "unsigned int": 4, "unsigned short": 2, "unsigned char": 1, "char": 1})


def built(machine: str) -> bytes:
    """The `.BTF` of a built object."""
    path = ROOT / "udsprobe" / "_bpf" / f"tracepoint.{machine}.bpf.o"
    if not path.exists():
        give_up(f"{path.name} is not built: scripts/build_bpf.py")
    return section(path.read_bytes(), ".BTF").content


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def btf(request: pytest.FixtureRequest) -> Btf:
    return Btf(built(request.param))


@pytest.fixture(scope="module")
def x86_64() -> bytes:
    return built("x86_64")


def members(struct_name: str) -> List[Tuple[str, str]]:
    """(type, name) of each member, from the header's text."""
    found = re.search(rf"^struct {struct_name} \{{(.*?)^\}};", HEADER, re.MULTILINE | re.DOTALL)
    assert found is not None
    plain = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    return re.findall(r"(\S[\w ]*?)\s+(\w+)(?:\[\w+\])?;", plain)


def test_the_header_was_understood() -> None:
    assert len(STRUCTS) > 10 and len(ENUMS) > 8


@pytest.mark.parametrize("name", [name for name in STRUCTS if name != "abi_types"])
def test_every_struct_decodes_with_the_members_of_the_header(btf: Btf, name: str) -> None:
    layout = btf.structure(name)
    shown = members(name)
    assert [field[0] for field in layout._fields_] == [member for _, member in shown]
    for kind, member in shown:
        field_type = {field[0]: field[1] for field in layout._fields_}[member]
        element = field_type._type_ if issubclass(field_type, ctypes.Array) else field_type
        assert kind.startswith("struct ") or ctypes.sizeof(element) == CTYPES[kind], member


@pytest.mark.parametrize("name", ENUMS)
def test_every_enum_has_the_names_of_the_header(btf: Btf, name: str) -> None:
    found = re.search(rf"^enum {name} \{{(.*?)^\}};", HEADER, re.MULTILINE | re.DOTALL)
    assert found is not None
    plain = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    assert list(btf.enum(name)) == re.findall(r"^\s*([A-Z]\w*)", plain, re.MULTILINE)


def test_latency_layout_is_the_models(btf: Btf) -> None:
    limits = btf.enum("limits")
    ours = {name: value for name, value in limits.items() if name.startswith("LATENCY_")}
    assert len(ours) == 4
    assert ours == {name: getattr(histogram, name) for name in ours}
    slots = {f[0]: f[1] for f in btf.structure("latency")._fields_}["slots"]
    assert slots._length_ == histogram.LATENCY_SLOTS


def test_depth_layout_is_the_readers(btf: Btf) -> None:
    limits = btf.enum("limits")
    assert limits["DEPTH_EXACT"] == listener_table.DEPTH_EXACT
    slots = {f[0]: f[1] for f in btf.structure("listener")._fields_}["depth"]
    assert slots._length_ == limits["DEPTH_SLOTS"]


def test_calls_are_exactly_those_with_traits(btf: Btf) -> None:
    names = {name[len("CALL_") :].lower() for name in btf.enum("call")} - {"none"}
    assert names == {*TRAITS, "socketcall", *(f"uring_{name}" for name, _ in URING.values())}
    assert {like for _, like in URING.values()} <= TRAITS.keys()
    assert max(URING) < btf.enum("limits")["URING_OPS"]


def test_calls_fit_their_key(btf: Btf) -> None:
    limits = btf.enum("limits")
    assert max(btf.enum("call").values()) < limits["CALL_MAX"]
    assert max(btf.enum("endpoint").values()) < limits["ENDPOINT_MAX"]
    abis = len(btf.enum("abi"))
    assert limits["SERIES_KEYS"] == abis * limits["CALL_MAX"] * limits["ENDPOINT_MAX"]


def test_globals_lie_apart_in_their_section(btf: Btf) -> None:
    places = sorted(btf.variables(".bss").values(), key=lambda place: place.offset_bytes)
    assert len(places) > 3 and all(place.size_bytes > 0 for place in places)


@pytest.mark.parametrize("kind", ["structure", "enum", "variables"])
def test_a_missing_name_is_named(btf: Btf, kind: str) -> None:
    with pytest.raises(BtfError, match="no_such"):
        getattr(btf, kind)("no_such")


def made(types: bytes, strings: bytes) -> bytes:
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    return header + types + strings


def kind_info(kind: int, vlen: int) -> int:
    return kind << 24 | vlen


STRINGS = b"\0u32\0pair\0a\0b\0up\0down\0flags\0"
NAMES: Dict[str, int] = {
    name: STRINGS.index(b"\0" + name.encode() + b"\0") + 1
    for name in ("u32", "pair", "a", "b", "up", "down", "flags")
}
INT = struct.pack("<IIII", NAMES["u32"], kind_info(1, 0), 4, 32)


def pair(second_bits: int, size: int) -> bytes:
    return struct.pack(
        "<III6I",
        *(NAMES["pair"], kind_info(KIND_STRUCT, 2), size),
        *(NAMES["a"], 1, 0),
        *(NAMES["b"], 1, second_bits),
    )


def test_a_struct_made_by_hand() -> None:
    layout = Btf(made(INT + pair(32, 8), STRINGS)).structure("pair")
    value = layout.from_buffer_copy(struct.pack("<II", 7, 9))
    assert (value.a, value.b, ctypes.sizeof(layout)) == (7, 9, 8)


def test_negative_enumerators() -> None:
    types = struct.pack("<III", NAMES["flags"], kind_info(KIND_ENUM, 2), 4)
    types += struct.pack("<IiIi", NAMES["down"], -1, NAMES["up"], 1)
    assert Btf(made(types, STRINGS)).enum("flags") == {"down": -1, "up": 1}


@pytest.mark.parametrize(("second_bits", "size"), [(64, 12), (32, 12)])
def test_padding_that_ctypes_would_not_make_is_refused(second_bits: int, size: int) -> None:
    with pytest.raises(BtfError):
        Btf(made(INT + pair(second_bits, size), STRINGS)).structure("pair")


@pytest.mark.parametrize("raw", [b"", b"\x9f\xeb", b"\xeb\x9f" + bytes(22), bytes(24)])
def test_what_is_no_btf(raw: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(raw)


def use(raw: bytes) -> None:
    """Read everything there is; a damaged input may only raise BtfError."""
    with suppress(BtfError):
        read = Btf(raw)
        for ask, names in (
            (read.structure, ["call_counts", "pair", "seed"]),
            (read.enum, ["limits", "flags"]),
            (read.variables, [".bss", ".rodata"]),
        ):
            for name in names:
                with suppress(BtfError):
                    ask(name)


SMALL = made(
    INT
    + pair(32, 8)
    + struct.pack("<IIIIi", NAMES["flags"], kind_info(KIND_ENUM, 1), 4, NAMES["up"], 1)
    + struct.pack("<IIIIII", NAMES["flags"], kind_info(KIND_DATASEC, 1), 4, 1, 0, 4),
    STRINGS.replace(b"flags", b".bss\0"),
)


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=6))
@settings(max_examples=300)
def test_any_damage_is_a_btf_error(changes: List[Tuple[int, int]]) -> None:
    raw = bytearray(SMALL)
    for at, value in changes:
        raw[at] = value
    use(bytes(raw))


@given(st.integers(0, len(SMALL)))
def test_any_cut_is_a_btf_error(length: int) -> None:
    use(SMALL[:length])


@given(st.binary(max_size=200))
def test_any_types_are_a_btf_error(types: bytes) -> None:
    use(made(types, STRINGS))


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=20))
@settings(max_examples=50, deadline=None)
def test_damage_of_the_built_object_is_a_btf_error(
    x86_64: bytes, changes: List[Tuple[float, int]]
) -> None:
    raw = bytearray(x86_64)
    for where, value in changes:
        raw[int(where * len(raw))] = value
    use(bytes(raw))
