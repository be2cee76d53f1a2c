"""npm packages of an example, outside the checkout: what its `package-lock.json` pins, no other.

They stay between runs in `$UDSPROBE_TEST_CACHE`, or `~/.cache/udsprobe-tests`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.scenarios.programs import program

FILES = ("package.json", "package-lock.json")
PATIENCE_S = 300


def cache() -> Path:
    """Where the packages of all examples are kept."""
    named = os.environ.get("UDSPROBE_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache/udsprobe-tests"


def node_modules(example: Path) -> Path:
    """The `node_modules` of an example, installed if they are not there.

    Args:
        example: its folder, with `package.json` and `package-lock.json`.

    Raises:
        RuntimeError: npm could not install them; its own last words are in it.
    """
    pinned = b"".join((example / name).read_bytes() for name in FILES)
    place = cache() / f"{example.name}-{hashlib.sha256(pinned).hexdigest()[:12]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{example.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _install(example, place)
    return place / "node_modules"


def _install(example: Path, place: Path) -> None:
    """Into a folder beside it first: what is at `place` is complete."""
    fresh = place.with_name(place.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name in FILES:
        shutil.copy(example / name, fresh)
    argv = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    argv += ["--omit=optional", "--cache", str(place.parent / "npm")]
    done = subprocess.run(
        argv, cwd=fresh, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"npm could not install {example.name}: {done.stderr[-2000:]}")
    fresh.replace(place)
