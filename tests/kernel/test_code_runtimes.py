"""Names of code that runtimes make or interpret, and of what sleeps in several languages.

What is said of each is the table of docs/named-code.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Tuple

import pytest

from tests.conftest import Require
from tests.kernel import busy
from tests.kernel.named_code import assert_told
from tests.kernel.test_code import CODE
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

# Language and culprit, as the table has them.
Culprit = Tuple[str, str]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Nothing of it is left behind."""
    with busy.folder() as path:
        yield path


def observed(
    commands: Mapping[Culprit, List[str]], folder: Path, asleep: Mapping[Culprit, str]
) -> Dict[Culprit, busy.Place]:
    """What is said of each; the maps that they wrote are removed."""
    with ExitStack() as stack:
        running = stack.enter_context(busy.started(*commands.values(), folder=str(folder)))
        pids = {name: each.pid for name, each in zip(commands, running)}
        for pid in pids.values():
            stack.callback(Path(f"/tmp/perf-{pid}.map").unlink, missing_ok=True)
        return busy.observed(pids, folder, asleep)


def assert_all_told(places: Mapping[Tuple[str, str], busy.Place]) -> None:
    for (where, name), place in places.items():
        assert_told(where, {name: place})


def test_running(folder: Path, require: Require) -> None:
    tools = require("node")
    verify = [str(CODE / "asleep.js"), "verify", str(folder / "js")]
    commands = {
        ("Node", "pbkdf2"): [tools["node"], *verify],
    }
    assert_all_told(observed(commands, folder, {}))


# Of what is inlined in another method only calls are told.
NOT_INLINED = ("-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Hot::*")
JAVA: Dict[str, Tuple[str, ...]] = {
    "function": (),
    "interpreted": ("-Xint",),
    "first-compiler": ("-XX:TieredStopAtLevel=1", *NOT_INLINED),
    "second-compiler": ("-XX:-TieredCompilation", *NOT_INLINED),
}
ASLEEP = {"lock": "futex", "monitor": "futex", "sleep": "futex"}


def test_java(folder: Path, require: Require) -> None:
    """None of them has a map, or keeps frame pointers."""
    tools = require("java", "javac")
    made = [tools["javac"], "-d", str(folder), str(CODE / "Hot.java"), str(CODE / "Asleep.java")]
    subprocess.run(made, check=True)
    java = [tools["java"], "-cp", str(folder)]
    commands = {("Java", name): [*java, *options, "Hot"] for name, options in JAVA.items()}
    commands.update({("Java", name): [*java, "Asleep", name] for name in ASLEEP})
    asleep = {("Java", name): call for name, call in ASLEEP.items()}
    assert_all_told(observed(commands, folder, asleep))


@pytest.mark.alone
def test_asleep(folder: Path, require: Require) -> None:
    tools = require("node", "go", "g++", "rustc")
    code = {suffix: str(CODE / f"asleep.{suffix}") for suffix in ("js", "py", "go", "cpp", "rs")}
    made = {suffix: str(folder / f"asleep-{suffix}") for suffix in ("go", "cpp", "rs")}
    environment = {**os.environ, "CGO_ENABLED": "0"}
    for argv in (
        [tools["go"], "build", "-o", made["go"], code["go"]],
        [tools["g++"], "-O2", "-pthread", "-o", made["cpp"], code["cpp"]],
        [tools["rustc"], "-O", "-o", made["rs"], code["rs"]],
    ):
        subprocess.run(argv, check=True, timeout=PATIENCE_S, env=environment)
    commands = {
        ("Node", "fsync"): [tools["node"], code["js"], "disk", str(folder / "a")],
        ("Python", "fsync"): [sys.executable, code["py"], "disk", str(folder / "b")],
        ("Python", "lock"): [sys.executable, code["py"], "lock"],
        ("Go", "fsync"): [made["go"], "disk", str(folder / "c")],
        ("Go", "mutex"): [made["go"], "lock", str(folder / "d")],
        ("C++", "mutex"): [made["cpp"]],
        ("Rust", "mutex"): [made["rs"]],
    }
    asleep = {name: "fsync" if "fsync" in name[1] else "futex" for name in commands}
    asleep["Go", "mutex"] = "goroutine"
    assert_all_told(observed(commands, folder, asleep))
