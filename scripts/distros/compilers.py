"""`python -m distros.compilers`: each clang builds all objects, and kernels load them.

Started by `scripts/compilers`. Every compiler's objects are loaded by this kernel; those of the
oldest and the newest with `--kernel` by Debian's kernels under emulation as well, with the
strategies each has.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from build_bpf import CLANG_MIN
from vm.archive import ArchiveError
from vm.guest import Bounds, LostGuestError
from vm.guest import run as run_guest
from vm.kernels import SUITES, kernel
from vm.script import PLACES
from vm.userland import this_machine_s

from .page import written
from .roots import RELEASES, Release, Root, RootError, made

ROOT = Path(__file__).resolve().parents[2]
WITH_COMPILERS = ("debian-12", "debian-13")
CHECK = ["-m", "udsprobe.kernel.programs.object_check"]
RESULTS = "compilers"

# Compiler → kernel → what it said of the objects, or why there is nothing.
Outcomes = Dict[str, Dict[str, str]]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns 1 when an object was not built, or refused by a verifier, and 4 without roots."""
    asked = _parser().parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="udsprobe-compilers-"))
    try:
        outcomes = _outcomes(asked, work)
    except (RootError, ArchiveError) as error:
        print(f"compilers: {error}", file=sys.stderr)
        return 4
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(outcomes, indent=2))
    if asked.write:
        written(RESULTS, _table(outcomes))
    return int(any(_is_bad(said) for row in outcomes.values() for said in row.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="compilers", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--release",
        action="append",
        choices=list(RELEASES),
        help=f"whose compilers; default: {' '.join(WITH_COMPILERS)}",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        choices=[name for name in SUITES if not name.endswith("arm64")],
        help="an emulated kernel that loads the oldest's and the newest's objects too",
    )
    parser.add_argument("--expired", action="store_true", help="take lists called expired")
    parser.add_argument("--write", action="store_true", help="write docs/packaging.md's table")
    return parser


def _outcomes(asked: argparse.Namespace, work: Path) -> Outcomes:
    outcomes: Outcomes = {}
    built: Dict[str, Path] = {}
    for name in asked.release or WITH_COMPILERS:
        for clang, folder in _built_by_each(RELEASES[name], work, asked.expired):
            row = outcomes.setdefault(f"{clang} ({name})", {})
            if folder is None:
                row["built"] = "no"
                continue
            built[f"{clang} ({name})"] = folder
            row["here"] = _checked_here(folder)
            print(f"{clang} of {name}: {row['here']}", file=sys.stderr)
    ordered = sorted(built, key=_number)
    for one in {*ordered[:1], *ordered[-1:]}:
        for emulated in asked.kernel:
            outcomes[one][emulated] = _checked_in_guest(emulated, built[one], work)
            print(f"{one} on {emulated}: {outcomes[one][emulated]}", file=sys.stderr)
    return outcomes


def _built_by_each(
    release: Release, work: Path, expired: bool
) -> Iterator[tuple[str, Optional[Path]]]:
    """(clang-N, folder of its objects), None where it does not build them."""
    root = made(release, work / release.name, expired=expired)
    clangs = _clangs(root)
    root.install([*clangs, "libbpf-dev", "python3"])
    for clang in clangs:
        yield clang, _objects_of(root, clang, work / "objects" / release.name / clang)


def _clangs(root: Root) -> List[str]:
    found = [name.split(" ")[0] for name in root.packages("^clang-[0-9]+$")]
    return sorted((name for name in found if name and _number(name) >= CLANG_MIN), key=_number)


def _number(clang: str) -> int:
    found = re.search(r"clang-(\d+)", clang)
    return int(found[1]) if found else 0


def _objects_of(root: Root, clang: str, target: Path) -> Optional[Path]:
    """What a compiler makes of a copy of the sources."""
    copy = root.folder / "src"
    shutil.rmtree(copy, ignore_errors=True)
    for part in ("bpf", "scripts"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "udsprobe").mkdir()
    done = root.run(["env", f"CLANG={clang}", "python3", "/src/scripts/build_bpf.py"])
    if done.returncode:
        print(f"{clang} of {root.release.name}: {done.stderr.strip()[-2000:]}", file=sys.stderr)
        return None
    shutil.copytree(copy / "udsprobe" / "_bpf", target)
    return target


def _checked_here(objects: Path) -> str:
    done = subprocess.run(
        [sys.executable, *CHECK, str(objects)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return _said(done.stdout, done.stderr)


def _checked_in_guest(name: str, objects: Path, work: Path) -> str:
    results = work / "guest" / name
    shutil.rmtree(results, ignore_errors=True)
    userland = this_machine_s()
    check = f"{userland.python} {' '.join(CHECK)} {objects}"
    script = (
        f"export HOME=/root PATH={PLACES} LC_ALL=C.UTF-8 PYTHONPATH={ROOT}\n"
        f"{check} >/results/said 2>/results/errors\n"
    )
    try:
        run_guest(kernel(name), userland, script, results, Bounds(seconds=600))
    except LostGuestError as error:
        return f"lost: {error}"
    return _said((results / "said").read_text(), (results / "errors").read_text())


def _said(lines: str, errors: str) -> str:
    if errors.strip():
        return errors.strip().splitlines()[-1]
    loads = [line.split(":")[0] for line in lines.splitlines() if line.endswith(": loads")]
    return f"loads {', '.join(loads)}" if loads else "nothing loads"


def _is_bad(said: str) -> bool:
    return not said.startswith("loads")


def _table(outcomes: Outcomes) -> str:
    columns = list(dict.fromkeys(name for row in outcomes.values() for name in row))
    lines = [f"| compiler | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for compiler in sorted(outcomes, key=_number):
        cells = [outcomes[compiler].get(name, "not tried") for name in columns]
        lines.append(f"| {compiler} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
