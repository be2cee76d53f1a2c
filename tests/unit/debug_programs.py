"""Programs with debug information, and what llvm-symbolizer has of it."""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

import pytest

from tests.conftest import Require
from tests.patience import PATIENCE_S
from udsprobe.symbols.demangled import function_name
from udsprobe.symbols.dwarf.answers import Source
from udsprobe.symbols.dwarf.functions import ADDRESSES_MAX, Allowance, DebugFunctions

CODE = Path(__file__).parent.parent / "workloads" / "code"
Chain = List[Source]


class Code(NamedTuple):
    """Of a program: its address, and size in bytes."""

    start: int
    size_bytes: int


def built(compiler: str, source: str, target: Path, require: Require, *options: str) -> Path:
    argv = [require(compiler)[compiler], *options, "-o", str(target), str(CODE / source)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run(require: Require, program: str, *arguments: object) -> str:
    argv = [require(program)[program], *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def code_of(program: Path, require: Require) -> Code:
    sections = run(require, "readelf", "-SW", program)
    (found,) = re.findall(r" \.text +PROGBITS +(\w+) \w+ (\w+)", sections)
    return Code(*(int(each, 16) for each in found))


def truth(program: Path, addresses: Iterable[int], require: Require) -> List[Chain]:
    """Of each address the functions, the innermost first, with where they are declared."""
    symbolizer = require("llvm-symbolizer")["llvm-symbolizer"]
    argv = [symbolizer, "--output-style=JSON", "--no-demangle", f"--obj={program}"]
    asked = "\n".join(map(hex, addresses))
    done = subprocess.run(argv, input=asked, capture_output=True, text=True)
    if "output-style" in done.stderr:
        pytest.skip("this llvm-symbolizer writes no JSON")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line]
    flat = [one for row in rows for one in (row if isinstance(row, list) else [row])]
    return [[_of_llvm(each) for each in row["Symbol"]] for row in flat]


def _of_llvm(symbol: Dict[str, Any]) -> Source:
    file = posixpath.normpath(symbol["StartFileName"]) if symbol["StartFileName"] else None
    name = function_name(symbol["FunctionName"].encode())
    return Source(name, file, symbol["StartLine"] or None)


def told(program: Path, addresses: Sequence[int]) -> List[Chain]:
    """What udsprobe has of them; empty: nothing."""
    with program.open("rb") as file:
        allowance = Allowance(PATIENCE_S, PATIENCE_S)
        functions = DebugFunctions(os.dup(file.fileno()), None, allowance)
        for first in range(0, len(addresses), ADDRESSES_MAX):
            for address in addresses[first : first + ADDRESSES_MAX]:
                functions.want(address)
            functions.look()
    found = [_chain(functions, address) for address in addresses]
    functions.close()
    return found


def _chain(functions: DebugFunctions, address: int) -> Chain:
    found = functions.at(address)
    return [] if found is None else [*found.calls_at(address), found.own]
