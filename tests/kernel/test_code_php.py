"""Names of code in PHP, interpreted and made at run time, and in a worker of PHP-FPM.

What is said of each is the table of docs/named-code.md.
"""

from __future__ import annotations

import platform
import socket
import struct
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from tests.conftest import Require, give_up
from tests.kernel import busy, servers
from tests.kernel.named_code import assert_told
from tests.kernel.test_code_servers import worker_of
from tests.patience import PATIENCE_S
from tests.phps import WAYS

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("nothing_left_over"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="it is read in code of x86-64"),
]

COMPUTES = "{ $found = 1; while ($rounds--) $found = $found * 31 % 65537; return $found; }"
FUNCTION = f"""<?php
function planted_dear($rounds) {COMPUTES}
function planted_caller() {{ return planted_dear(100000); }}
"""
METHOD = f"""<?php
namespace App;
class Auth {{ public function verify($rounds) {COMPUTES} }}
class Handler {{ public function handle() {{ return (new Auth)->verify(100000); }} }}
function serve() {{ return (new Handler)->handle(); }}
"""
SCRIPTS = {
    "function": f"{FUNCTION}while (1) planted_caller();",
    "method": f"{METHOD}while (1) serve();",
    "pbkdf2": """<?php
function planted_verify() { return hash_pbkdf2("sha256", "secret", "salt", 20000); }
while (1) planted_verify();""",
    "sort": """<?php
function planted_order($rows) { usort($rows, fn($a, $b) => $a <=> $b); return $rows; }
$rows = range(1, 20000);
shuffle($rows);
while (1) planted_order($rows);""",
    "usleep": """<?php
function planted_wait() { usleep(20000); }
while (1) planted_wait();""",
}
ASLEEP = {"usleep": "clock_nanosleep"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Which the user of PHP-FPM may enter; nothing of it is left behind."""
    with busy.folder() as path:
        yield path


def written(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.php"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def told_of(commands: Dict[str, List[str]], folder: Path) -> Dict[str, busy.Place]:
    with ExitStack() as stack:
        running = stack.enter_context(busy.started(*commands.values(), folder=str(folder)))
        pids = {name: each.pid for name, each in zip(commands, running)}
        for pid in pids.values():
            stack.callback(Path(f"/tmp/perf-{pid}.map").unlink, missing_ok=True)
        return busy.observed(pids, folder, {name: ASLEEP[name] for name in pids if name in ASLEEP})


def test_interpreted(folder: Path, require: Require) -> None:
    php = require("php")["php"]
    commands = {name: [php, "-n", written(folder, name, text)] for name, text in SCRIPTS.items()}
    assert_told("PHP", told_of(commands, folder))


def test_made_at_run_time(folder: Path, require: Require) -> None:
    """By trace, by function, and with a map."""
    php, script = require("php")["php"], written(folder, "function", SCRIPTS["function"])
    commands = {
        "jit-tracing": [php, *WAYS["made by trace"], script],
        "jit-function": [php, *WAYS["made by function"], script],
        "jit-map": [php, *WAYS["made by function"], "-d", "opcache.jit_debug=16", script],
    }
    assert_told("PHP", told_of(commands, folder))


# ------------------------------------------------------------ PHP-FPM

POOL = """[global]
error_log = {folder}/log
[www]
user = nobody
listen = {folder}/fpm
pm = static
pm.max_children = 1
"""


def record(kind: int, body: bytes) -> bytes:
    """Of FastCGI, version 1, request 1."""
    return struct.pack(">BBHHBx", 1, kind, 1, len(body), 0) + body


def asked(path: str, script: str) -> None:
    """One request on a connection of its own; the whole reply is read."""
    values = {b"SCRIPT_FILENAME": script.encode(), b"REQUEST_METHOD": b"GET"}
    parts = (bytes([len(name), len(value)]) + name + value for name, value in values.items())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        begins = record(1, struct.pack(">HB5x", 1, 0))
        connection.sendall(begins + record(4, b"".join(parts)) + record(4, b"") + record(5, b""))
        while connection.recv(1 << 16):
            pass


@contextmanager
def asking(path: str, scripts: List[str]) -> Iterator[None]:
    """A client that asks for one after the other without end."""
    ends = threading.Event()

    def ask() -> None:
        while not ends.is_set():
            for script in scripts:
                asked(path, script)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_worker_that_makes_its_functions_anew_for_each_request(
    folder: Path, require: Require
) -> None:
    """Without opcache, in the places of another script's."""
    programs = sorted(Path("/usr/sbin").glob("php-fpm*"))
    if not programs:
        give_up("no php-fpm installed: scripts/setup --for-tests")
    pool = folder / "pool.conf"
    pool.write_text(POOL.format(folder=folder))
    scripts = [
        written(folder, "index", f"{FUNCTION}for ($i = 0; $i < 20; $i++) planted_caller();"),
        written(folder, "other", f"{METHOD}serve();"),
    ]
    argv = [str(programs[-1]), "-F", "-n", "-y", str(pool)]
    path = str(folder / "fpm")
    with servers.Server(argv, path, folder / "out") as server, asking(path, scripts):
        told = busy.observed({"fpm": worker_of(server.pid)}, folder)
    assert_told("PHP", told)
