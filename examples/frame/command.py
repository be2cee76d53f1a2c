"""The command line of an example, and its end: whatever ends it, its benches are left.

Knows nothing of what an example measures.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from examples.frame.table import document, replace_measured
from tests.scenarios.programs import missing

# Ten others on a CPU get a tenth of it together (sched_prio_to_weight).
PRIORITY = -20


@dataclass(frozen=True)
class Options:
    """quick: the short form that CI runs. only: what is chosen by name, all for none."""

    quick: bool
    only: Sequence[str]


@dataclass(frozen=True)
class Result:
    """tables: Markdown. wrong: what did not come out as it must, a line each."""

    tables: str
    wrong: Sequence[str]


def parse(name: str, description: str, argv: Sequence[str]) -> argparse.Namespace:
    """The command line that all examples have."""
    parser = argparse.ArgumentParser(prog=f"examples/{name}/run", description=description)
    parser.add_argument("only", nargs="*", help="parts of the example by name, with wildcards")
    parser.add_argument("--quick", action="store_true", help="the short form that CI runs")
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    return parser.parse_args(argv)


def run(
    folder: Path,
    description: str,
    needs: Sequence[str],
    measure: Callable[[Options], Result],
    argv: Optional[Sequence[str]] = None,
) -> int:
    """Run an example and print its tables: 0 all as it must be, 1 not, 2 a program is missing.

    Args:
        folder: of the example.
        needs: programs that must be installed.
        measure: uses benches as context managers, so that every exit ends their processes.
    """
    given = parse(folder.name, description, sys.argv[1:] if argv is None else argv)
    absent = missing(needs)
    if absent:
        sys.stderr.write(f"{folder.name}: not installed: {', '.join(absent)}; scripts/setup\n")
        return 2
    # What else the machine does is not what is measured; servers and loads inherit it.
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, _: sys.exit(128 + signum))
    try:
        result = measure(Options(given.quick, given.only))
    except KeyboardInterrupt:
        return 130
    except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{folder.name}: could not be measured: {error}\n")
        return 1
    text = document(result.tables, _command(folder, given))
    sys.stdout.write(text)
    if given.write:
        replace_measured(folder / "README.md", text)
    for line in result.wrong:
        sys.stderr.write(f"{folder.name}: WRONG: {line}\n")
    return 1 if result.wrong else 0


def _command(folder: Path, given: argparse.Namespace) -> str:
    words: List[str] = ["sudo", f"examples/{folder.name}/run"]
    words += ["--quick"] if given.quick else []
    return " ".join([*words, *given.only])
