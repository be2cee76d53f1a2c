"""Names of strangers in /proc, and recordings made to hurt: what each of them once did."""

from __future__ import annotations

import json
import sqlite3
import struct
import tracemalloc
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, List

import pytest

from tests.fuzz import documents
from tests.fuzz.targets import TARGETS
from tests.unit import bodies, recordings, samples
from tests.unit.compared import made
from udsprobe.cli import main
from udsprobe.doctor.unit_file import together
from udsprobe.kernel.proc.cgroups import mounts
from udsprobe.kernel.proc.limits import identity_of
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.diag_messages import answers
from udsprobe.recording.plain import to_json


def proc(folder: Path, **files: bytes) -> Procfs:
    (folder / "7").mkdir()
    for name, content in files.items():
        (folder / "7" / name).write_bytes(content)
    return Procfs(str(folder))


@pytest.mark.parametrize("lie", [b"\rTgid:\t1", b"\rTgid:\tx"])
def test_a_comm_cannot_say_which_process_a_thread_is_of(lie: bytes, tmp_path: Path) -> None:
    status = b"Name:\tx" + lie + b"\nTgid:\t7\n"
    assert proc(tmp_path, status=status).thread_group(7) == 7


def test_a_control_group_with_a_carriage_return(tmp_path: Path) -> None:
    procfs = proc(tmp_path, cgroup=b"0::/user.slice/a\rb\n")
    assert procfs.cgroup_paths(7) == {"": "/user.slice/a\rb"}
    assert procfs.cgroup(7) == "/user.slice/a\\x0db"


@pytest.mark.parametrize(
    "stat", [b"", b"7 (a", b"7 (a) R x", b"x (a) R " + b"1 " * 30, b"7 (a) \xff " + b"-1 " * 30]
)
def test_a_stat_that_is_none(stat: bytes, tmp_path: Path) -> None:
    assert proc(tmp_path, stat=stat).process(7) is None


@pytest.mark.parametrize(
    "stranger",
    [
        b"36 2 0:9 / /home/a\rb rw - fuse.x x rw\n",
        "36 2 0:9 / /home/a\u2028b\x85 rw - fuse.x x rw\n".encode(),
        b"36 2 0:9 / /mnt rw - tmpfs  rw\n",
        b"36 2\n",
    ],
)
def test_mounts_of_strangers_are_passed_over(stranger: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_bytes(stranger + b"31 2 0:2 / /sys/fs/c\\040g rw - cgroup2 cgroup2 rw\n")
    assert [mount.path for mount in mounts(str(file))] == [Path("/sys/fs/c g")]


def test_a_comm_cannot_say_who_a_process_runs_as() -> None:
    status = "Name:\tx\rGroups:\t0\nUid:\t5\t5\t5\t5\nGid:\t5\t5\t5\t5\nCapEff:\t0\n"
    found = identity_of(status)
    assert found is not None and found.gids == ()


def test_only_a_newline_ends_a_line_of_a_unit() -> None:
    text = "[Service]\nEnvironment=A=\u2028LimitNOFILE=5\x85LimitNOFILE=6\n"
    assert together([text]).limit_nofile is None


def test_a_cut_answer_of_sock_diag_is_an_error_of_the_dump() -> None:
    cut = struct.pack("=IHHII", 18, 20, 2, 1, 0) + b"\x01\x01"
    with pytest.raises(OSError, match="sock_diag"):
        list(answers(cut, 1))


MISPLACED = (
    "4800000014000200010000000000000001010a004d0000000e00000005000000000000000e000000"
    "0061627374726163740100000c00010007000000080000000c000400010000008000000014000000"
    "0300020001000000000000f200000000"
)
"""Found by `scripts/fuzz`: its attributes lie where none can be decoded."""


def test_an_answer_whose_attributes_cannot_be_decoded() -> None:
    assert not TARGETS["sock-diag"].attempt(bytes.fromhex(MISPLACED))


def former(nodes: List[Any], columns: bytes = b"", samples_: Any = 1) -> bytes:
    """A body with these places and columns, as versions before wrote them."""
    head = {"samples": samples_, "first_node": 1, "nodes": nodes, "words": []}
    packed = json.dumps(head).encode()
    return whole(len(packed)) + packed + (columns or bytes(5))


def whole(value: int) -> bytes:
    """LEB128 in four bytes."""
    return bytes([value >> at & 0x7F | 0x80 for at in (0, 7, 14)] + [value >> 21])


def deep(levels: int) -> List[Any]:
    return [[level, "a"] for level in range(levels)]


FORMER_BOMBS = {
    "a number without an end": former([], b"\xff" * (8 << 20)),
    "samples without an end": former([], samples_=10**12),
    "as many as infinity": former([], samples_=float("inf")),
    "a tree as deep as it is large": former(deep(50_000)),
    "brackets": whole(2_000_000) + b"[" * 2_000_000,
    "nodes of nothing": former([[0, {}]]),
}
PACKED = {
    **{f"former: {kind}": b"z" + zlib.compress(raw) for kind, raw in FORMER_BOMBS.items()},
    **{kind: bodies.packed(raw) for kind, raw in {**bodies.LIES, **bodies.BOMBS}.items()},
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_recording_made_to_hurt(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb"
    documents.forge(path, PACKED[kind], to_json(samples.observation()))
    assert_refused(path, capsys)


def assert_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 6 and one line, soon, and with little memory."""
    tracemalloc.start()
    try:
        assert main(["report", str(path), "--json"]) == 6
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("udsprobe: error[recording-damaged]:")
    assert most_bytes < 512 << 20


@pytest.mark.parametrize("asked", [["report"], ["replay"]])
def test_a_defect_of_a_rule_is_not_called_damage(
    asked: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its file is sound: whoever reads that it is damaged throws it away."""

    def defective(*_: object) -> List[object]:
        return [][1]

    recordings.recorded(tmp_path / "sound", 4)
    monkeypatch.setattr("udsprobe.rules.judge.buffer_suspects", defective)
    assert main([*asked, str(tmp_path / "sound"), "--json"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("udsprobe: error[internal]: IndexError")
    assert "please report it" in said


ROWS = [
    "UPDATE block SET last_sequence = 1000000000000",
    "UPDATE block SET last_sequence = -5",
    "UPDATE block SET first_unix_s = 9e999, last_unix_s = 9e999",
    "UPDATE block SET first_unix_s = -1",
    "UPDATE block SET body = 'text'",
    "UPDATE block SET first_unix_s = 'now'",
]


@pytest.mark.parametrize("change", ROWS)
def test_rows_that_lie(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lie"
    recordings.recorded(path, 4)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(change)
        documents.sign(store)
    assert_refused(path, capsys)


def test_tables_that_compute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table"
    recordings.recorded(path, 4)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("DROP TABLE ledger")
        store.execute(
            "CREATE TABLE ledger (one INTEGER, bodies INTEGER AS (length(hex(zeroblob(1000)))),"
            " checksum INTEGER)"
        )
        store.execute("INSERT INTO ledger (one, checksum) VALUES (1, 0)")
    assert_refused(path, capsys)


def test_a_table_whose_definition_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "torn"
    recordings.recorded(path, 4)
    torn = path.read_bytes().replace(b"tableledger", b"table\xc2edger")
    path.write_bytes(torn.replace(b"CREATE TABLE ledger", b"CREATE TABL; ledger"))
    assert_refused(path, capsys)


def test_a_document_with_a_list_for_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    document = made()
    document["syscalls"] = [{"transport": [], "bytes": 5}]
    path.write_text(json.dumps(document), "utf-8")
    assert main(["compare", str(path), str(path), "--json"]) in (0, 6)
    assert "internal" not in capsys.readouterr().err
