"""Too few descriptors: the limit is named, with the command that raises it."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import Optional

import pytest

from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.programs import loader
from udsprobe.own_descriptors import descriptors_used_up


def test_emfile_names_the_limit() -> None:
    error = descriptors_used_up(errno.EMFILE)
    assert error is not None and error.slug == "no-descriptors"
    assert "RLIMIT_NOFILE" in error.line() and "ulimit -n 256" in error.line()


def test_enfile_names_the_hosts() -> None:
    error = descriptors_used_up(errno.ENFILE)
    assert error is not None and "fs.file-max" in error.line()


@pytest.mark.parametrize("other", [None, errno.EPERM, errno.ENOMEM])
def test_other_errors_are_not_about_descriptors(other: Optional[int]) -> None:
    assert descriptors_used_up(other) is None


def test_a_load_that_failed_for_it_is_no_refusal_by_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "missing_capabilities", tuple)
    assert loader.refusal(LibbpfError("bpf_object__load", errno.EMFILE)).slug == "no-descriptors"


def test_a_command_without_descriptors_is_one_line() -> None:
    done = listeners_with(3)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("udsprobe: error[no-descriptors]: udsprobe may open 3 files")
    assert done.stderr.count("\n") == 1


def test_limits_that_cannot_be_read_for_want_of_descriptors_are_told() -> None:
    done = listeners_with(5)
    assert done.returncode == 0
    told = "limits of a network namespace were not read: udsprobe may open 5 files here"
    assert told in done.stderr and done.stderr.count("\n") == 1


def listeners_with(limit: int) -> subprocess.CompletedProcess[str]:
    program = "import resource; from udsprobe.cli import main; import udsprobe.commands.listeners\n"
    program += f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
    program += "raise SystemExit(main(['listeners']))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
