"""Records of the stack sampler are kept as they came, and made into objects when they count."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from udsprobe.kernel.abilities.built_objects import built_program
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.stacks.php_frames import PhpFrame
from udsprobe.kernel.stacks.raw_stacks import (
    HeldStack,
    RawStack,
    Records,
    SleepBegan,
    SleepTime,
    event_of,
    pid_of,
)
from udsprobe.kernel.stacks.v8_frames import V8Frame

MEMORY = bytes(range(200))


@pytest.fixture(scope="module")
def records() -> Records:
    opened = ProbeObject(built_program("stacks"))
    layout, kinds = opened.btf.structure("stack_sample"), opened.btf.enum("stack_record")
    opened.close()
    made = Records(layout, kinds)
    made.layout, made.kinds = layout, kinds  # type: ignore[attr-defined]
    return made


def record(records: Any, kind: str) -> Any:
    """Of process 7 and its thread 8, with something in each list."""
    made = records.layout(tgid=7, tid=8, record=records.kinds[kind], is_owing=1, call=35)
    made.thread, made.began_ns, made.ns, made.ip, made.sp = 9, 1000, 250, 0x401000, 0x7FFF0000
    made.v8_count = made.php_count = made.python_count = 1
    made.v8_frames[0].fp, made.v8_frames[0].shared, made.v8_frames[0].caller = 11, 12, 13
    made.php_frames[0].function, made.php_frames[0].mark = 21, 22
    made.python_frames[0].code, made.python_frames[0].name = 30, 31
    made.kernel_frames_bytes, made.user_frames_bytes = 16, 24
    made.kernel_frames[0], made.kernel_frames[1] = 41, 42
    made.user_frames[0], made.user_frames[1], made.user_frames[2] = 51, 52, 53
    made.copy_bytes = len(MEMORY)
    ctypes.memmove(ctypes.addressof(made) + records.layout.copy.offset, MEMORY, len(MEMORY))
    return made


def held(records: Records, kind: str) -> Any:
    """As it is kept; the ring has other things there by now."""
    made = record(records, kind)
    kept = records.at(ctypes.addressof(made))
    ctypes.memset(ctypes.addressof(made), 0xFF, ctypes.sizeof(made))
    return kept


def test_what_is_filled_is_kept_and_all_of_it_is_told(records: Records) -> None:
    kept = held(records, "RECORD_SAMPLE")
    assert isinstance(kept, HeldStack)
    assert pid_of(kept) == 7
    stack = event_of(kept)
    assert isinstance(stack, RawStack)
    assert (stack.pid, stack.tid, stack.call, stack.is_owing) == (7, 8, 35, True)
    assert (stack.kernel, stack.user) == ((41, 42), (51, 52, 53))
    assert (stack.registers.ip, stack.registers.sp) == (0x401000, 0x7FFF0000)
    assert stack.v8 == (V8Frame(11, 12, 13),)
    assert stack.php == (PhpFrame(20, 22, True),)
    assert [(frame.code, frame.name) for frame in stack.python] == [(30, 31)]
    assert stack.ruby == ()
    assert stack.memory == MEMORY


def test_what_is_not_filled_is_not_kept(records: Any) -> None:
    kept = held(records, "RECORD_SAMPLE")
    first = records.layout.v8_frames.offset
    of_frames = sum(
        ctypes.sizeof(getattr(records.layout(), name)[0])
        for name in ("v8_frames", "php_frames", "python_frames")
    )
    assert kept.size_bytes == first + of_frames + 16 + 24 + len(MEMORY)


def test_a_sleep_that_began_has_its_stack(records: Records) -> None:
    began = event_of(held(records, "RECORD_WAIT_BEGAN"))
    assert isinstance(began, SleepBegan)
    assert (began.wait, began.is_owing, began.stack.memory) == ((9, 1000), True, MEMORY)
    assert pid_of(began) == 7


def test_a_time_is_told_at_once(records: Records) -> None:
    ended = held(records, "RECORD_WAIT_ENDED")
    assert ended == SleepTime((9, 1000), 250, has_ended=True)
    assert event_of(ended) is ended
    assert pid_of(ended) is None
