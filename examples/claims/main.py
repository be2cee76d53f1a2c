"""Small checks of what the founding documents claim; docs/claims.md has the whole list."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import List

from examples.claims import kernel_checks, node_checks
from examples.claims.check import CHECKS
from examples.frame import Options, Result, run, table

NEEDS = ("gcc", "ip", "nginx", "node", "prlimit", "ss", "strace", "taskset", "unshare")
# Left out of the quick form: they take most of the time.
SLOW = frozenset(
    {
        *("proxied-calls", "proxy-buffering", "strace-with-a-command", "node-calls"),
        *("cpu-at-5000-requests", "pauses-on-both-transports", "idle-connections"),
    }
)
assert kernel_checks and node_checks  # imported for what they register


def measure(options: Options) -> Result:
    """All checks, or those asked for; one that fails is an error of this list."""
    rows: List[List[object]] = []
    wrong: List[str] = []
    for name, one in CHECKS.items():
        if options.only and not any(fnmatch(name, pattern) for pattern in options.only):
            continue
        if options.quick and name in SLOW:
            continue
        try:
            figures = one.measure()
            said = one.said(figures)
            wrong += [f"{name}: {line}" for line in one.wrong(figures)]
        except Exception as error:  # one broken check must not end the others
            said = f"{type(error).__name__}: {error}"
            wrong.append(f"{name}: {said}")
        sys.stderr.write(f"{name}: {said}\n")
        rows.append([f"`{name}`", said])
    return Result(table(("check", "measured"), rows), wrong)


if __name__ == "__main__":
    sys.exit(run(Path(__file__).parent, __doc__ or "", NEEDS, measure))
