"""Names of code in Ruby, that computes and that sleeps, in threads, fibers and children.

What is said of each is the table of docs/named-code.md.
"""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from tests.conftest import Require
from tests.kernel import busy
from tests.kernel.named_code import assert_told

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("nothing_left_over"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="it is known of x86-64"),
]

COMPUTES = """found = 1
  while rounds > 0
    found = found * 31 % 65537
    rounds -= 1
  end
  found"""
FUNCTION = f"""
def planted_dear(rounds)
  {COMPUTES}
end
def planted_caller = planted_dear(100000)
"""
METHOD = f"""
module App
  class Auth
    def verify(rounds)
      {COMPUTES}
    end
  end
  class Handler
    def self.handle = Auth.new.verify(100000)
  end
end
"""
SCRIPTS = {
    "function": f"{FUNCTION}planted_caller while true",
    "method": f"{METHOD}App::Handler.handle while true",
    "block": f"""
def planted_sum
  3.times do |rounds|
    rounds = 100000
    {COMPUTES}
  end
end
planted_sum while true""",
    "sort": """
ROWS = (1..20000).to_a.shuffle(random: Random.new(1))
def planted_order = ROWS.sort_by { |each| each * 31 % 65537 }
planted_order while true""",
    "pbkdf2": """
require "openssl"
def planted_verify
  OpenSSL::KDF.pbkdf2_hmac("secret", salt: "salt", iterations: 20000, length: 32, hash: "sha256")
end
planted_verify while true""",
    "fiber": f"""{FUNCTION}
turns = Fiber.new {{ loop {{ planted_caller; Fiber.yield }} }}
turns.resume while true""",
    "thread": f"""{FUNCTION}
3.times {{ Thread.new {{ Queue.new.pop }} }}
Thread.new {{ planted_caller while true }}
sleep""",
    "child": f"""{FUNCTION}
child = fork {{ planted_caller while true }}
File.write(ARGV[0], child.to_s)
Process.wait""",
    "sleep": """
def planted_wait = sleep(0.02)
planted_wait while true""",
    "mutex": """
def planted_entry(door) = door.synchronize { sleep(0.01) }
door = Mutex.new
2.times { Thread.new { planted_entry(door) while true } }
planted_entry(door) while true""",
    "fsync": """
def planted_dump(file)
  file.write("x" * 4096)
  file.fsync
end
File.open(ARGV[0], "w") { |file| planted_dump(file) while true }""",
}
ASLEEP = {"sleep": "ppoll", "mutex": "futex", "fsync": "fsync"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Nothing of it is left behind."""
    with busy.folder() as path:
        yield path


def written(folder: Path, name: str) -> str:
    path = folder / f"{name}.rb"
    path.write_text(SCRIPTS[name])
    return str(path)


def told_of(ruby: str, folder: Path, *names: str) -> Dict[str, Dict[str, Any]]:
    """Of these scripts, each in a process of its own."""
    commands = [[ruby, written(folder, each), str(folder / "written")] for each in names]
    with busy.started(*commands) as running:
        pids = {name: process.pid for name, process in zip(names, running)}
        return busy.observed(pids, folder, {each: ASLEEP[each] for each in names if each in ASLEEP})


def test_code_that_computes(folder: Path, require: Require) -> None:
    """Methods, of a class itself too, blocks, and what they call in C."""
    ruby = require("ruby")["ruby"]
    assert_told("Ruby", told_of(ruby, folder, "function", "method", "block", "sort", "pbkdf2"))


def test_threads_and_fibers(folder: Path, require: Require) -> None:
    ruby = require("ruby")["ruby"]
    assert_told("Ruby", told_of(ruby, folder, "fiber", "thread"))


def test_a_child_that_goes_on_with_its_code(folder: Path, require: Require) -> None:
    """As the workers of Puma and Unicorn, which are no other program."""
    number = folder / "written"
    with busy.started([require("ruby")["ruby"], written(folder, "child"), str(number)]):
        busy.until(lambda: number.exists() and bool(number.read_text()), "a child")
        child = int(number.read_text())
        try:
            assert_told("Ruby", busy.observed({"child": child}, folder))
        finally:
            os.kill(child, signal.SIGKILL)


def test_code_that_sleeps(folder: Path, require: Require) -> None:
    ruby = require("ruby")["ruby"]
    assert_told("Ruby", told_of(ruby, folder, "sleep", "mutex", "fsync"))
