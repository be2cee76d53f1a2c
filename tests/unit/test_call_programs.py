"""When the tracepoints of system calls come and go beside functions.

The kernel this is developed on refuses programs on functions, so object and counters are stand-ins
here; tests/kernel/test_by_functions.py has the real ones, where they load.
"""

from __future__ import annotations

from typing import Any, Iterable, List

import pytest

from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.programs import call_programs
from udsprobe.kernel.programs.call_programs import CallPrograms, is_of_calls


class Object:
    """Which programs are attached; `attach` fails when privileges are gone."""

    def __init__(self) -> None:
        self.live: List[str] = ["sys_enter", "sys_exit"]
        self.may_attach = True

    def attach(self, program: str) -> None:
        if not self.may_attach:
            raise LibbpfError("bpf_program__attach", 1)
        self.live.append(program)

    def take_back_if_there(self, programs: Iterable[str]) -> None:
        self.live = [name for name in self.live if name not in set(programs)]


class Counters:
    """Threads that need tracepoints, as the kernel half counts them."""

    def __init__(self) -> None:
        self.threads = 1
        self.begins_meanwhile = 0
        self.told: List[bool] = []
        self.stopped = False

    def traced_threads(self) -> int:
        return self.threads

    def say_tracepoints_are(self, on: bool) -> None:
        self.told.append(on)
        self.threads += self.begins_meanwhile

    def stop(self) -> None:
        self.stopped = True


class Functions:
    """Programs on functions."""

    def attach(self) -> None:
        """They are."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs with one function, their object and counters."""
    monkeypatch.setattr(call_programs, "function_programs", lambda loaded, functions: Functions())
    loaded: Any = Object()
    counters: Any = Counters()
    programs = CallPrograms(loaded)
    programs.begin(["a function"], counters)
    return programs, loaded, counters


def test_they_go_when_no_thread_needs_them_and_come_again(begun: Any) -> None:
    programs, loaded, counters = begun
    programs.settle()
    assert loaded.live == ["sys_enter", "sys_exit"]
    counters.threads = 0
    programs.settle()
    assert loaded.live == []
    counters.threads = 2
    programs.settle()
    assert loaded.live == ["sys_enter", "sys_exit"]
    assert counters.told == [True, False, True]


def test_a_32_bit_program_that_begins_while_they_are_taken_away_keeps_them(begun: Any) -> None:
    programs, loaded, counters = begun
    counters.threads, counters.begins_meanwhile = 0, 1
    programs.settle()
    assert loaded.live == ["sys_enter", "sys_exit"]
    assert counters.told[-1] is True


def test_they_come_before_more_threads_become_targets(begun: Any) -> None:
    programs, loaded, counters = begun
    counters.threads = 0
    programs.settle()
    programs.need_tracepoints()
    assert loaded.live == ["sys_enter", "sys_exit"]
    programs.need_tracepoints()
    assert loaded.live == ["sys_enter", "sys_exit"], "once is enough"


def test_without_privileges_they_stay_away_and_it_is_not_said_that_they_are_there(
    begun: Any,
) -> None:
    programs, loaded, counters = begun
    counters.threads = 0
    programs.settle()
    counters.threads, loaded.may_attach = 1, False
    programs.settle()
    assert loaded.live == []
    assert counters.told == [True, False]


def test_after_the_end_nothing_is_attached_any_more(begun: Any) -> None:
    programs, loaded, counters = begun
    counters.threads = 0
    programs.settle()
    programs.stop()
    counters.threads = 5
    programs.settle()
    assert counters.stopped
    assert loaded.live == []


def test_without_functions_they_are_always_there() -> None:
    loaded: Any = Object()
    counters: Any = Counters()
    counters.threads = 0
    programs = CallPrograms(loaded)
    programs.begin([], counters)
    programs.settle()
    programs.stop()
    assert loaded.live == ["sys_enter", "sys_exit"]
    assert not counters.stopped
    assert programs.accounts() == {}


def test_which_programs_see_calls() -> None:
    assert is_of_calls("sys_enter")
    assert is_of_calls("fexit:system calls")
    assert not is_of_calls("sched_switch")
