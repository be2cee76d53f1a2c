"""`python -m vm`: boot, test, tell, and write the page. Started by `scripts/kernel-matrix`."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, Union

from .archive import ArchiveError
from .evidence import Evidence, evidence
from .guest import Bounds, run
from .host import HOST, Host, run_here, this_host
from .kernels import SUITES, Kernel, cache_folder, headers, kernel, processor_of
from .page import Place, page
from .processors import X86_64, Processor
from .script import BCC, STRATEGIES, guest_script, host_script, selected_tests
from .userland import Userland, debian_s, suite_of, this_machine_s

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "support-matrix.md"
LOST = "lost"
NO_KERNEL = 4
Machine = Union[Kernel, Host]
# Trampolines on arm64 need ftrace's direct calls, which it has since 6.4 (commit 2aa6ac03516d).
WITHOUT_FENTRY = ("6.1-arm64",)
# Where the machine's own BCC, of the same release of Debian, knows the kernel's headers.
WITH_BCC = ("6.1",)
LOGS = Path(tempfile.gettempdir()) / "udsprobe-kernel-matrix"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns 0 when no guest was lost and no test failed, 4 when a kernel cannot be had.

    The same 4 when programs for its processor cannot.
    """
    asked = _parser().parse_args(arguments)
    try:
        kernels = [_machine(name, asked.refresh) for name in asked.kernel or _every_one()]
        places = [(one, each) for one in kernels for each in asked.strategy or _strategies(one)]
        if not asked.again:
            _run_all(places, asked)
    except ArchiveError as error:
        print(f"kernel-matrix: {error}", file=sys.stderr)
        return NO_KERNEL
    found: Dict[Place, Evidence] = {
        (_title(one), strategy): _found(_results(asked.logs, one, strategy))
        for one, strategy in places
        if _is_over(_results(asked.logs, one, strategy))
    }
    # Tests say the release in full, which is nothing to others where it is this machine's own.
    text = page(found).replace(platform.release(), this_host().release)
    if asked.write:
        PAGE.write_text(text)
    print(text)
    return 1 if any(_is_bad(place, each) for place, each in found.items()) else 0


def _every_one() -> List[str]:
    """Of this processor, and of others where their programs can be had."""
    names = [*SUITES, HOST]
    try:
        suite_of(sys.version_info[:2])
    except ArchiveError as error:
        print(f"kernel-matrix: {error}: without their kernels", file=sys.stderr)
        return [name for name in names if name == HOST or processor_of(name) == X86_64]
    return names


def _strategies(one: Machine) -> Tuple[str, ...]:
    if one.name in WITHOUT_FENTRY:
        return STRATEGIES[:1]
    return (*STRATEGIES, BCC) if one.name in WITH_BCC else STRATEGIES


def _title(one: Machine) -> str:
    return f"{one.release}, {HOST}" if isinstance(one, Host) else one.release


def _machine(name: str, refresh: bool) -> Machine:
    return this_host() if name == HOST else kernel(name, refresh=refresh)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernel-matrix", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kernel",
        action="append",
        choices=[*SUITES, HOST],
        help="one kernel, or this machine's own; default: all",
    )
    parser.add_argument(
        "--strategy",
        action="append",
        choices=("auto", *STRATEGIES, BCC),
        help="one strategy; default: each by its name",
    )
    parser.add_argument("--jobs", type=int, default=2, help="guests at a time")
    parser.add_argument("--cpus", type=int, default=Bounds.cpus, help="of each guest")
    parser.add_argument("--seconds", type=int, default=2400, help="what a guest may take")
    parser.add_argument("--short", action="store_true", help="one test of each program")
    parser.add_argument("--refresh", action="store_true", help="look for newer kernels")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--again", action="store_true", help="boot nothing: what the logs say")
    parser.add_argument("--logs", type=Path, default=LOGS, help="where guests leave their words")
    parser.add_argument("tests", nargs="*", help="pytest's arguments; default: a selection")
    return parser


def _run_all(places: List[Tuple[Machine, str]], asked: argparse.Namespace) -> None:
    bounds = Bounds(cpus=asked.cpus, seconds=asked.seconds)
    for processor in {one.processor for one, _ in places if isinstance(one, Kernel)}:
        _userland(processor)  # before two guests want the same one
    with ThreadPoolExecutor(asked.jobs) as pool:
        for one, strategy in places:
            results = _results(asked.logs, one, strategy)
            shutil.rmtree(results, ignore_errors=True)
            tests = asked.tests or selected_tests(strategy, asked.short)
            pool.submit(_guest, one, strategy, tests, results, bounds)


@cache
def _userland(processor: Processor) -> Userland:
    if processor == X86_64:
        return this_machine_s()
    return debian_s(processor, ROOT, cache_folder())


def _guest(one: Machine, strategy: str, tests: List[str], results: Path, bounds: Bounds) -> None:
    began = time.monotonic()
    results.mkdir(parents=True)
    try:
        if isinstance(one, Host):
            run_here(one, host_script(ROOT, strategy, tests, results), results, bounds)
        else:
            unpacked = headers(one) if strategy == BCC else None
            userland = _userland(one.processor)
            script = guest_script(ROOT, strategy, tests, userland, unpacked)
            run(one, userland, script, results, bounds)
    except Exception as error:  # whatever it is, it must not pass for a guest without failures
        (results / LOST).write_text(str(error))
    _tell(one, strategy, _found(results), time.monotonic() - began)


def _results(logs: Path, one: Machine, strategy: str) -> Path:
    place: Path = logs / f"{one.name}-{strategy}"
    return place


def _is_over(results: Path) -> bool:
    return any((results / name).is_file() for name in ("status", LOST))


def _found(results: Path) -> Evidence:
    found = evidence(results)
    if (results / LOST).is_file():
        return replace(found, trouble=(results / LOST).read_text().strip())
    return found


def _tell(one: Machine, strategy: str, found: Evidence, seconds: float) -> None:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.counts().items()))
    print(f"{one.release} {strategy}: {counts or 'no test'} in {seconds:.0f} s", file=sys.stderr)
    for test in found.tests:
        if test.outcome == "failed":
            print(f"  {test.name}: {test.words.splitlines()[0][:200]}", file=sys.stderr)
    if found.trouble:
        print(f"  {found.trouble}", file=sys.stderr)


def _is_bad(place: Place, found: Evidence) -> bool:
    """Debian's kernels take every strategy; whoever set up this machine may have refused one."""
    title, strategy = place
    if found.strategy is None and title == _title(this_host()) and strategy != STRATEGIES[0]:
        return False
    return found.trouble is not None or found.counts().get("failed", 0) > 0 or not found.tests


if __name__ == "__main__":
    sys.exit(main())
