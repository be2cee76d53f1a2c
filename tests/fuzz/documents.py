"""Files that somebody else sends: recordings and report documents, to every view of them."""

from __future__ import annotations

import io
import json
import sqlite3
import struct
import tempfile
import zlib
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from tests.fuzz.target import Target
from tests.golden import surfaces
from tests.unit import recordings, reports, samples
from tests.visible import invisible
from udsprobe.commands.output.sources import _run
from udsprobe.compare import compare
from udsprobe.compare.tally import NotAReport
from udsprobe.errors import RecordingError
from udsprobe.model.report import Report
from udsprobe.recording.bodies.body import pack, unpacked
from udsprobe.recording.bodies.columns import Gathered, change_of
from udsprobe.recording.bodies.leaves import Flattener, Leaves
from udsprobe.recording.bodies.limits import BODY_BYTES_MAX
from udsprobe.recording.layout import checksum, observation_checksum
from udsprobe.recording.plain import to_json
from udsprobe.recording.reader import Recording, open_recording
from udsprobe.views.documents import compare_document
from udsprobe.views.documents.report_document import json_text
from udsprobe.views.text import compare_text
from udsprobe.views.text import report_text as text

_FOLDER = tempfile.TemporaryDirectory(prefix="udsprobe-fuzz-")
_RECORDING = Path(_FOLDER.name, "recording")
EDIT = struct.Struct("<HB")


@cache
def _template_path() -> Path:
    """A small recording, with a full window."""
    path = Path(_FOLDER.name, "template")
    with recordings.record(path, list(recordings.service(6)), findings=(2, 3)) as recorder:
        window, taken = recorder.full_window(), list(recordings.service(3))
        window.begin(samples.observation(), taken[0], None)
        for each in taken[1:]:
            window.add(each, None)
        window.end()
    return path


@cache
def _former_path() -> Path:
    """A small recording of an earlier version, whose bodies are written otherwise."""
    return surfaces.unpacked("unknown.asyncio-three-requests", Path(_FOLDER.name))


@cache
def body(path: Path) -> bytes:
    """What its only block holds, unpacked."""
    with closing(sqlite3.connect(path)) as store:
        (packed,) = store.execute("SELECT body FROM block").fetchone()
    return unpacked(packed, BODY_BYTES_MAX)


def shown(report: Report) -> None:
    """Every view of one report that needs no screen."""
    assert not invisible(text.render(report), "\n")
    json.loads(json_text(report).encode("ascii"))


def _all_of(recording: Recording) -> None:
    shown(recording.report())
    recording.timeline(*recording.ends())
    for interval in recording.intervals():
        shown(interval)
    recording.sequences()
    for each in recording.windows():
        shown(recording.window(each.number).report())


def _read(path: Path) -> None:
    with open_recording(str(path)) as recording:
        _all_of(recording)


def _file(data: bytes) -> None:
    """Bytes changed at some places of a good file, or the file cut."""
    content = bytearray(_template_path().read_bytes())
    for at, change in EDIT.iter_unpack(data[: len(data) // EDIT.size * EDIT.size]):
        content[at * 61 % len(content)] ^= change
    if len(data) % EDIT.size == 1:
        del content[data[-1] * len(content) // 256 :]
    _RECORDING.write_bytes(content)
    _read(_RECORDING)


def forge(path: Path, packed: bytes, observation: str, of: Optional[Path] = None) -> None:
    """Write a recording, the template, with another body and observation, and right checksums."""
    path.write_bytes((of or _template_path()).read_bytes())
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("PRAGMA synchronous = OFF")
        store.execute("UPDATE block SET body = ?", (packed,))
        store.execute("UPDATE observation SET body = ?, slo_us = NULL", (observation,))
        sign(store)


def sign(store: sqlite3.Connection) -> None:
    """Make the checksums right again, as whoever forges a recording can."""
    where = "first_sequence, last_sequence, first_unix_s, last_unix_s, body"
    (*row,) = store.execute(f"SELECT {where} FROM block").fetchone()
    (observation,) = store.execute("SELECT body FROM observation").fetchone()
    about = observation_checksum(observation, None)
    try:
        value = checksum(*row)
    except (TypeError, struct.error):  # of another type than any checksum is of
        value = 0
    store.execute("DELETE FROM finding")
    store.execute("UPDATE block SET checksum = ?", (value,))
    store.execute("UPDATE observation SET checksum = ?", (about,))
    store.execute("UPDATE ledger SET bodies = 2, checksum = ?", (value + about,))


def _forged(packed: bytes, observation: str) -> None:
    forge(_RECORDING, packed, observation)
    _read(_RECORDING)


def _body(data: bytes) -> None:
    _forged(b"Z" + zlib.compress(data, 1), to_json(samples.observation()))


def _former_body(data: bytes) -> None:
    packed = b"z" + zlib.compress(data, 1)
    forge(_RECORDING, packed, to_json(samples.observation()), _former_path())
    with open_recording(str(_RECORDING)) as recording:
        list(recording.samples())
        list(recording.moments(*recording.ends()))
        _all_of(recording)


def _observation(data: bytes) -> None:
    packed = b"Z" + zlib.compress(body(_template_path()), 1)
    _forged(packed, data.decode("utf-8", "replace"))


STRANGE: Dict[type, Sequence[Any]] = {
    int: (0, 1, -1, 2, 1000, 1 << 31, 1 << 62, (1 << 64) - 1, -(1 << 63)),
    float: (0.0, -1.0, 1e-9, 1.5, 1e9, 1e308, -1e308),
    bool: (True, False),
    str: ("", "\x1b[2J", "\udcff\ud800", "[bold]", "0.0.0.0:80", "unix", "read", "x" * 300),
}
LEAF = struct.Struct("<HBB")


def _leaves(data: bytes) -> None:
    """Samples that are sound but for some values, which are of the right type."""
    flattener, gathered = Flattener(), Gathered()
    every = list(LEAF.iter_unpack(data[: len(data) // LEAF.size * LEAF.size]))
    before: Leaves = {}
    for sample in recordings.service(6):
        known = len(flattener.nodes)
        leaves = dict(flattener.leaves(sample))
        nodes = list(leaves)
        for at, which, when in every:
            node = nodes[at % len(nodes)]
            choices = (*STRANGE.get(type(leaves[node]), (leaves[node],)), None)
            if sample.sequence >= when % 6 and not isinstance(leaves[node], tuple):
                leaves[node] = choices[which % len(choices)]
        gathered.add(change_of(flattener.nodes, known, before, leaves))
        before = leaves
    packed = pack(gathered.columns(flattener.nodes))
    _forged(packed, to_json(samples.observation()))


@cache
def _other() -> bytes:
    return json_text(reports.busy()).encode()


def _document(data: bytes) -> None:
    run = _run("a", io.BytesIO(data))
    comparison = compare([run], [_run("b", io.BytesIO(_other()))])
    assert not invisible(compare_text.render(comparison, 80), "\n")
    json.loads(compare_document.json_text(comparison).encode("ascii"))


def _document_seeds() -> List[bytes]:
    from udsprobe.views.documents.report_document import json_line

    kinds = (reports.busy(), reports.empty(), reports.hostile())
    lines = [json_line(each).encode() for each in kinds]
    return [*lines, b"".join(lines)]


TARGETS: Tuple[Target, ...] = (
    Target("recording-file", lambda: [b"", EDIT.pack(9, 1), b"\x80"], _file, (RecordingError,)),
    Target("recording-body", lambda: [body(_template_path())], _body, (RecordingError,)),
    Target("recording-former", lambda: [body(_former_path())], _former_body, (RecordingError,)),
    Target("recording-leaves", lambda: [b"", LEAF.pack(9, 2, 3)], _leaves, (RecordingError,)),
    Target(
        "recording-about",
        lambda: [to_json(samples.observation()).encode()],
        _observation,
        (RecordingError,),
    ),
    Target("report-document", _document_seeds, _document, (NotAReport, RecordingError)),
)
