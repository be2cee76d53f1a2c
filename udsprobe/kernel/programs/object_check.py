"""Whether this kernel's verifier takes the built objects: `python -m` this module [FOLDER].

Set-up asks it once after it has built them, so that a compiler whose output the verifier refuses
is named there and not at the first attach; scripts/compilers asks it for each compiler. Loads
every object of this machine, attaches nothing.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Iterator, Optional, Sequence, Tuple

import udsprobe
from udsprobe.errors import KernelCannotError, NotPermittedError, UdsprobeError
from udsprobe.kernel.abilities.call_functions import described
from udsprobe.kernel.abilities.features import Features, kernel_features
from udsprobe.kernel.abilities.plan import programs
from udsprobe.kernel.abilities.syscall_table import syscall_tables
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.programs.loader import load, possible_cpus, verifier_refusal

BUILT = Path(udsprobe.__file__).parent / "_bpf"
OBJECTS = ("tracepoint", "tracepoint_early", "fentry")
STACKS = "stacks"


def checked_objects(folder: Path) -> Iterator[Tuple[str, str]]:
    """(object, `loads` or why it was not tried), one after the other.

    Args:
        folder: of the built objects.

    Raises:
        UdsprobeError: `verifier` where an object is refused; `not-root`, and what
            `kernel_features` raises.
        OSError: an object is missing.
    """
    features = kernel_features()
    for name in OBJECTS:
        raw = (folder / f"{name}.{platform.machine()}.bpf.o").read_bytes()
        yield name, _check(name, raw, features)
    yield STACKS, _check_stacks((folder / f"{STACKS}.{platform.machine()}.bpf.o").read_bytes())


def _check_stacks(raw: bytes) -> str:
    loaded = ProbeObject(raw)
    try:
        loaded.load()
    except LibbpfError as error:
        refused = verifier_refusal(error, raw)
        if refused is not None:
            raise refused from error
        return f"not tried: {error}"
    finally:
        loaded.close()
    return "loads"


def _check(name: str, raw: bytes, features: Features) -> str:
    why_not = _not_for(name, features)
    if why_not:
        return f"not tried: {why_not}"
    strategy = "fentry" if name == "fentry" else "tracepoint"
    try:
        loaded = load(
            *(features, syscall_tables(platform.machine()), possible_cpus()),
            programs(strategy, features.events),
            follow=True,
            functions=described(features.call_functions) if name == "fentry" else [],
            raw=raw,
        )
    except KernelCannotError as error:
        if error.slug == "verifier":
            raise
        return f"not tried: {error.what}"
    loaded.close()
    return "loads"


def _not_for(name: str, features: Features) -> Optional[str]:
    """Why this kernel is given another object; None where it would be this one."""
    if name == "fentry":
        return None if features.call_functions else "needs trampolines (Linux 5.15)"
    if name == "tracepoint":
        return None if features.task_storage else "needs task storage (Linux 5.12)"
    return "for kernels without task storage (before Linux 5.12)" if features.task_storage else None


def main(arguments: Sequence[str]) -> int:
    """Print a line for each object; 4 where the verifier refuses one, else 0."""
    folder = Path(arguments[0]) if arguments else BUILT
    try:
        for name, outcome in checked_objects(folder):
            print(f"{name}: {outcome}")
    except NotPermittedError as error:
        print(f"not tried: {error}", file=sys.stderr)
    except UdsprobeError as error:
        print(error.line(), file=sys.stderr)
        return 4 if error.slug == "verifier" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
