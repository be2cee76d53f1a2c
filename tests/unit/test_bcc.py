"""Strategy `bcc` without BCC: what it says it measures, what it looks for, how maps are read."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.conftest import give_up
from tests.elf import section
from tests.unit import samples
from udsprobe import cli
from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.plan import EVENT_PROGRAMS, measurements
from udsprobe.kernel.abilities.syscall_table import SyscallTable
from udsprobe.kernel.bcc import program as bcc_object
from udsprobe.kernel.bcc.counters import BccCounters
from udsprobe.kernel.bcc.library import bcc_module, has_headers
from udsprobe.kernel.bcc.plan import EVENTS, bcc_measurements
from udsprobe.kernel.bcc.program import BccObject
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.tables.counters import EventAccount
from udsprobe.recording import Recorder
from udsprobe.reporting import Reporter
from udsprobe.sample import CallInFlight, Endpoint, Sample

ROOT = Path(__file__).resolve().parents[2]
RELEASE = platform.release()
NOT_MEASURED = (
    *("threads", "exited_activity_ns", "connects", "upstream", "connections"),
    *("connections_open", "served_by", "loops", "loop_busy", "cpu_holders"),
)
SOURCE = (ROOT / "bpf" / "bcc_syscalls.c").read_text()


@pytest.fixture(autouse=True)
def without_bcc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever Python itself finds; what a test finds is forgotten."""
    places = [place for place in sys.path if not Path(place, "bcc").is_dir()]
    monkeypatch.setattr(sys, "path", places)
    monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    known = sys.modules.pop("bcc", None)
    yield
    sys.modules.pop("bcc", None)
    if known is not None:
        sys.modules["bcc"] = known


def install_bcc(root: Path, text: str = "class BPF: pass\n") -> None:
    folder = root / "usr/lib/python3/dist-packages/bcc"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)


def install_headers(root: Path, tree: str = "build") -> None:
    folder = root / "lib/modules" / RELEASE / tree / "include/linux"
    folder.mkdir(parents=True)
    (folder / "kconfig.h").touch()


def refusal(root: Path) -> KernelCannotError:
    with pytest.raises(KernelCannotError) as caught:
        bcc_module(root)
    assert caught.value.line().count("\n") == 0
    return caught.value


def test_both_are_found(tmp_path: Path) -> None:
    install_bcc(tmp_path)
    install_headers(tmp_path)
    assert bcc_module(tmp_path).BPF.__name__ == "BPF"


def test_missing_packages_are_named_together(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.slug == "no-bcc"
    assert f"apt install python3-bpfcc linux-headers-{RELEASE}`" in error.line()
    assert f"dnf install python3-bcc kernel-devel-{RELEASE}`" in error.line()


def test_bcc_alone_is_missing(tmp_path: Path) -> None:
    install_headers(tmp_path)
    error = refusal(tmp_path)
    assert error.slug == "no-bcc"
    assert "apt install python3-bpfcc`" in error.line()


def test_headers_alone_are_missing(tmp_path: Path) -> None:
    install_bcc(tmp_path)
    error = refusal(tmp_path)
    assert error.slug == "no-kernel-headers"
    assert f"apt install linux-headers-{RELEASE}`" in error.line()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "which is not installed"),  # PyPI's
        ("import ctypes; ctypes.CDLL('libno-such.so')", "libno-such.so"),
        ("import no_such_part", "which is not installed"),
    ],
)
def test_what_cannot_be_used_is_no_bcc(tmp_path: Path, text: str, why: str) -> None:
    install_bcc(tmp_path, text)
    install_headers(tmp_path)
    error = refusal(tmp_path)
    assert error.slug == "no-bcc" and why in error.line()
    assert "bcc" not in sys.modules


def test_headers_where_bcc_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_headers(RELEASE, tmp_path)
    (tmp_path / "lib/modules" / RELEASE / "build").mkdir(parents=True)
    assert not has_headers(RELEASE, tmp_path), "left over of a package that was removed"
    install_headers(tmp_path, "source")
    assert has_headers(RELEASE, tmp_path)
    monkeypatch.setenv("BCC_KERNEL_SOURCE", str(tmp_path / "elsewhere"))
    assert not has_headers(RELEASE, tmp_path)
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/kheaders.tar.xz").touch()
    assert has_headers(RELEASE, tmp_path)


class Silent:
    """Stands for BCC's module: says why on the terminal, and ends the process."""

    @staticmethod
    def BPF(**_: object) -> None:
        os.write(2, b"main.c:1: error: no such field\n")
        os.write(1, b"Try rebuilding the kernel\n")
        sys.exit(1)


def test_what_bcc_says_is_kept_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.c").touch()
    monkeypatch.setattr(bcc_object, "bcc_module", lambda: Silent)
    monkeypatch.setattr(bcc_object, "libbpf", lambda: None)
    with pytest.raises(KernelCannotError) as caught:
        BccObject(tmp_path / "one.c", {}, 1)
    assert caught.value.slug == "bcc-failed"
    assert "main.c:1: error: no such field" in caught.value.line()
    assert "Try rebuilding the kernel" in caught.value.detail
    assert capfd.readouterr() == ("", "")


def test_measurements_are_those_of_the_other_strategies() -> None:
    others = measurements(frozenset(program.name for program in EVENT_PROGRAMS))
    assert [each.name for each in bcc_measurements()] == [each.name for each in others]


def test_what_is_not_on_says_why_and_the_rest_on_what_it_rests() -> None:
    for each in bcc_measurements():
        assert (each.reason is None) == (each.state == "on")
        assert (each.rests_on is None) == (each.state == "off")


def test_each_event_has_its_function() -> None:
    assert [event for event in EVENTS if f"int on_{event}(" not in SOURCE] == []
    assert SOURCE.isascii()


class Maps:
    """Stands for a `BccObject`: maps as Python has them."""

    def __init__(self, **maps: Dict[bytes, bytes]) -> None:
        self.maps = maps

    def keys(self, name: str, _: int) -> List[bytes]:
        return list(self.maps.get(name, {}))

    def value(self, name: str, key: bytes, size: int) -> Optional[bytes]:
        found = self.maps.get(name, {}).get(key)
        assert found is None or len(found) == size
        return found

    def words(self, name: str, key: bytes, words: int) -> List[Tuple[int, ...]]:
        return list(struct.iter_unpack(f"<{words}Q", self.maps[name][key]))


@pytest.fixture(scope="module")
def btf() -> Btf:
    path = ROOT / "udsprobe" / "_bpf" / "tracepoint.x86_64.bpf.o"
    if not path.exists():
        give_up(f"{path.name} is not built: scripts/build_bpf.py")
    return Btf(section(path.read_bytes(), ".BTF").content)


def counters(btf: Btf, **maps: Dict[bytes, bytes]) -> BccCounters:
    tables = SyscallTable({0: "read"}), SyscallTable({3: "read"})
    stub: Any = Maps(**maps)
    return BccCounters(stub, btf, tables)


def key(value: int) -> bytes:
    return struct.pack("<I", value)


def test_what_the_cpus_counted_is_added_up(btf: Btf) -> None:
    def on_one(wall_ns: int) -> bytes:
        counts = btf.structure("call_counts")()
        counts.latency.count, counts.latency.total_ns = 1, wall_ns
        counts.latency.max_ns = wall_ns
        counts.bytes, counts.early_calls = 64, 1
        counts.errors[11] = 2
        return bytes(counts)

    unix = btf.enum("endpoint")["ENDPOINT_UNIX_STREAM"]
    index = btf.enum("call")["CALL_READ"] * btf.enum("limits")["ENDPOINT_MAX"] + unix
    (row,) = counters(btf, calls={key(index): on_one(100) + on_one(300)}).calls()
    assert (row.name, row.abi, row.endpoint) == ("read", "native", Endpoint("unix", "stream"))
    assert (row.calls, row.bytes, row.errors) == (4, 128, {"EAGAIN": 4})
    assert (row.latency.count, row.latency.max_ns, row.wall_ns) == (2, 300, 400)


def test_calls_by_name_of_both_abis(btf: Btf) -> None:
    def numbers(**calls: int) -> bytes:
        value = btf.structure("bcc_numbers")()
        for number, made in calls.items():
            value.calls[int(number[1:])] = made
        return bytes(value)

    of_cpus = {key(0): numbers(n0=2) + numbers(n0=3, n7=1), key(1): numbers() + numbers(n3=4)}
    assert counters(btf, numbers=of_cpus).calls_by_name() == {
        "read": 5,
        "syscall_7": 1,
        "compat:read": 4,
    }


def test_the_account_and_what_was_turned_away(btf: Btf) -> None:
    account = btf.structure("bcc_account")(events_seen=5, events_counted=4, lost_map_full=1)
    gauges = {key(at): struct.pack("<Q", value) for at, value in enumerate((7, 0, 2, 0))}
    found = counters(btf, accounts={key(0): bytes(account) * 2}, gauges=gauges)
    assert found.events() == EventAccount(10, 8, 2, 0)
    assert found.turned_away() == {"processes": 2}
    assert found.targets_exited() == 7


def test_who_is_inside_a_call_that_has_a_row(btf: Btf) -> None:
    def thread(tid: int, flags: int, call: int) -> bytes:
        value = btf.structure("bcc_thread")(tgid=7, tid=tid, flags=flags)
        value.now.call, value.now.start_ns = call, 99
        return bytes(value)

    inside, read = btf.enum("thread_flag")["THREAD_IN_CALL"], btf.enum("call")["CALL_READ"]
    entries = [thread(8, inside, read), thread(9, 0, read), thread(10, inside, 0)]
    threads = {struct.pack("<Q", at): entry for at, entry in enumerate(entries)}
    (found,) = counters(btf, threads=threads).in_flight()
    assert found == CallInFlight(7, 8, "read", "native", Endpoint("other", None), 99)
    assert ctypes.sizeof(btf.structure("bcc_thread")) == len(entries[0])


def test_what_is_not_measured_is_not_claimed_in_any_form(tmp_path: Path) -> None:
    """The whole way from samples of this strategy, through a recording, to text."""
    observation = samples.observation(strategy="bcc", measurements=bcc_measurements())
    with Recorder(str(tmp_path / "a.udsprobe"), None) as recorder:
        recorder.begin(observation, of_bcc(0))
        reporter = Reporter(observation, of_bcc(0))
        for number in range(1, 4):
            recorder.add(of_bcc(number), reporter.interval(of_bcc(number)))
    report = reporter.window()
    assert report.verdict is not None and report.verdict.cause == "unknown"
    assert (report.time, report.connections, report.connects) == (None, None, None)
    served = report.requests.served
    assert served is not None and served.count == 90
    assert served.stages_us.app is not None and served.stages_us.recv_wait is None
    assert (served.app_time_pct, report.requests.upstream) == (None, None)
    done = cli.main(["report", str(tmp_path / "a.udsprobe")])
    assert done == 0


def of_bcc(number: int) -> Sample:
    """What the collector of this strategy makes: what it does not measure is None."""
    took_ns = [1_000 + 37 * each for each in range(30 * number)]
    whole = samples.served(took_ns, app_activity_ns={})
    told = {name: whole.stages[name] for name in ("recv", "app", "send")}
    return samples.sample(
        float(number),
        calls=(samples.call("read", samples.UNIX, took_ns),),
        served=replace(whole, stages=told),
        **dict.fromkeys(NOT_MEASURED),
    )
