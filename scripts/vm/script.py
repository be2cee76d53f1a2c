"""What a guest runs: one observation for its report, then the tests.

Knows how this repository's tests are started, and nothing of virtual machines.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import List, Optional, Sequence

from .userland import Userland, this_machine_s

STRATEGIES = ("tracepoint", "fentry")
BCC = "bcc"
SELECTION = Path(__file__).with_name("selection.txt")
# BCC compiles for a minute there, at each start of udsprobe.
SELECTION_BCC = Path(__file__).with_name("selection_bcc.txt")
# An emulated processor that others want too: see tests/patience.py.
SLOWNESS = 8
TEST_SECONDS = 600
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def selected_tests(strategy: str = STRATEGIES[0], short: bool = False) -> List[str]:
    """The tests of `selection.txt`, or of `selection_bcc.txt`.

    Args:
        short: those of its first paragraph.
    """
    text = (SELECTION_BCC if strategy == BCC else SELECTION).read_text()
    lines = (text.split("\n\n")[0] if short else text).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def guest_script(
    root: Path,
    strategy: str,
    tests: Sequence[str],
    userland: Userland,
    headers: Optional[Path] = None,
) -> str:
    """A bash script that leaves `report.json`, `refusal` and `junit.xml` in /results.

    Args:
        headers: of the guest's kernel, as `kernels.headers` unpacks them.
    """
    places = [f"export HOME=/root PATH={PLACES} TMPDIR=/run/tmp LC_ALL=C.UTF-8"]
    kernel_said = ["dmesg | grep -iE 'bug|warn|oops' | head"]
    body = _body(root, strategy, tests, Path("/results"), SLOWNESS, userland)
    return _script([*places, *_linked(headers), *body, *kernel_said])


def _linked(headers: Optional[Path]) -> List[str]:
    """As the packages' own links: what is made for this kernel, and what its sources share."""
    if headers is None:
        return []
    sources = f"{shlex.quote(str(headers))}/usr/src"
    return [
        "modules=/lib/modules/$(uname -r); mkdir -p $modules",
        f"ln -s {sources}/linux-headers-$(uname -r) $modules/build",
        f"ln -s {sources}/linux-headers-*-common $modules/source",
    ]


def host_script(root: Path, strategy: str, tests: Sequence[str], results: Path) -> str:
    """The same for this machine: nothing here is slower than its tests expect."""
    return _script(_body(root, strategy, tests, results, 1, this_machine_s()))


def _script(lines: Sequence[str]) -> str:
    return "\n".join([*lines, "exit $status\n"])


def _body(
    root: Path,
    strategy: str,
    tests: Sequence[str],
    results: Path,
    slowness: int,
    userland: Userland,
) -> List[str]:
    """Without a report there is nothing that tests could say of the strategy."""
    python = shlex.quote(userland.python)
    place = shlex.quote(str(results))
    observe = f"{python} -m udsprobe run --json --output {place}/report.json -- true"
    # Importing hypothesis takes an emulated processor a minute, and no test of probes uses it.
    pytest = f"{python} -m pytest -p no:cacheprovider -p no:hypothesispytest"
    pytest += f" -v --timeout {TEST_SECONDS}"
    return [
        f"export UDSPROBE_STRATEGY={strategy} UDSPROBE_SLOWNESS={slowness}",
        "export UDSPROBE_KERNEL_TESTS=1",
        f"cd {shlex.quote(str(root))} && export PYTHONPATH=$PWD",
        f"{observe} 2>{place}/refusal; status=$?",
        "if [[ $status == 0 ]]; then",
        f"    {pytest} --junitxml={place}/junit.xml {shlex.join(tests)}; status=$?",
        "fi",
    ]
