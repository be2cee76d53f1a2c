"""`python -m distros.readme`: the README's two commands from a fresh clone, on each release.

Started by `scripts/distributions`. The roots see this machine's kernel; the second command runs
with a selection of the tests.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from .page import written
from .roots import RELEASES, Release, Root, RootError, made, versions

ROOT = Path(__file__).resolve().parents[2]
NAME = "distributions"
CLONE = "/root/udsprobe"
DEMO = ["sudo", "scripts/demo"]
# Of each kind one: pure, real probes against a workload's own truth, a real server.
SELECTION = (
    "tests/unit/test_cli.py",
    "tests/unit/test_built_objects.py",
    "tests/kernel/test_workload_truth.py",
    "tests/kernel/test_real_servers.py",
)
# The nginx and strace of these are older than what the tests with them ask for.
SELECTION_OF_OLDER = {
    "debian-11": (
        "tests/unit/test_cli.py",
        "tests/unit/test_built_objects.py",
        "tests/kernel/test_upstream.py",
        "tests/kernel/test_accept_queue.py",
    )
}
PROGRAMS = (
    ("Python", "python3 -c 'import platform; print(platform.python_version())'"),
    (
        "clang",
        f"strings -n 8 {CLONE}/udsprobe/_bpf/tracepoint.$(uname -m).bpf.o 2>/dev/null"
        " | grep -m1 -oE '^clang [0-9.]+'",
    ),
    (
        "libbpf",
        f"{CLONE}/scripts/udsprobe doctor --json 2>/dev/null"
        " | grep -m1 -oE '\"libbpf\": *\"[^\"]+' | grep -oE '[0-9.]+$'",
    ),
)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns 1 when a command failed in a root, or a root could not be made."""
    asked = _parser().parse_args(arguments)
    rows: Dict[str, List[str]] = {}
    failed = False
    for name in asked.release or [each for each in RELEASES if each != "debian-sid"]:
        work = Path(tempfile.mkdtemp(prefix=f"udsprobe-{name}-"))
        try:
            rows[name], ok = _tried(RELEASES[name], work, asked)
        except RootError as error:
            rows[name], ok = ["–", "–", "–", f"not run: {error}", "–"], False
        finally:
            shutil.rmtree(work, ignore_errors=True)
        failed |= not ok
        print(f"{name}: {' · '.join(rows[name])}", file=sys.stderr)
    table = _table(rows)
    print(table)
    if asked.write:
        written(NAME, table)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="distributions", description=__doc__.splitlines()[0])
    parser.add_argument("--release", action="append", choices=list(RELEASES), help="default: all")
    parser.add_argument("--demo-only", action="store_true", help="the first command alone")
    parser.add_argument("--expired", action="store_true", help="take lists called expired")
    parser.add_argument("--write", action="store_true", help="write docs/packaging.md's table")
    parser.add_argument("tests", nargs="*", help="pytest's arguments instead of the selection")
    return parser


def _tried(release: Release, work: Path, asked: argparse.Namespace) -> tuple[List[str], bool]:
    root = made(release, work / "root", expired=asked.expired)
    subprocess.run(
        ["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(root.folder / CLONE.lstrip("/"))],
        check=True,
    )
    demo, demo_ok = _timed(root, DEMO)
    tests, tests_ok = "not asked for", True
    if demo_ok and not asked.demo_only:
        chosen = asked.tests or SELECTION_OF_OLDER.get(release.name, SELECTION)
        tests, tests_ok = _timed(root, ["sudo", "scripts/test", *chosen])
    found = versions(root, PROGRAMS)
    return [*found.values(), demo, tests], demo_ok and tests_ok


def _timed(root: Root, command: Sequence[str]) -> tuple[str, bool]:
    """What came of a command, with the seconds it took."""
    began = time.monotonic()
    done = root.run(["sh", "-c", 'cd "$0" && exec "$@"', CLONE, *command], seconds=3600)
    took = f"{time.monotonic() - began:.0f} s"
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    tails = (text.splitlines()[-60:] for text in (done.stderr, done.stdout))
    print(*itertools.chain(*tails), sep="\n", file=sys.stderr)
    counts = [line for line in lines if " passed" in line]
    if done.returncode:
        errors = [line for line in lines if line.startswith(("udsprobe: error", "E:"))]
        return f"failed: {(errors or counts or lines or ['no output'])[-1].strip('= ')}", False
    return f"{counts[-1].strip('= ') if counts else 'works'}, {took} with set-up", True


def _table(rows: Dict[str, List[str]]) -> str:
    head = (
        "release",
        *(name for name, _ in PROGRAMS),
        "`sudo scripts/demo`",
        "`sudo scripts/test` …",
    )
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())])


if __name__ == "__main__":
    sys.exit(main())
