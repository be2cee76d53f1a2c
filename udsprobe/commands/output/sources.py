"""Files of a comparison → runs: report documents, one or one a line, and recordings."""

from __future__ import annotations

import json
import os
import stat
from typing import IO, Any, Iterator, List, NoReturn, Tuple

from udsprobe.compare import Run, run_of
from udsprobe.compare.tally import REPORT_SCHEMA, NotAReport
from udsprobe.errors import RecordingError
from udsprobe.printable import printable
from udsprobe.recording import open_recording
from udsprobe.views.documents.report_document import document

SQLITE_MAGIC = b"SQLite format 3\0"
DOCUMENT_BYTES_MAX = 64 << 20
"""A document is some 100 kB; what is larger is another file and would fill the memory."""

_WRITE_ONE = "udsprobe attach --json or --jsonl --output FILE writes one"


def read_runs(names: str) -> List[Run]:
    """The runs of one side.

    Args:
        names: one file, or several with commas between them.

    Raises:
        RecordingError: `no-such-file`, `file-unreadable`, `not-a-report`, `newer-report`.
    """
    if os.path.exists(names):  # a comma is also a character of names
        return [_read(names)]
    return [_read(name) for name in names.split(",")]


def _read(name: str) -> Run:
    try:
        with _opened(name) as file:
            return _run(name, file)
    except FileNotFoundError:
        raise RecordingError(
            "no-such-file",
            f"there is no file {name!r}" if name else "a file name is empty",
            "give report documents or recordings, several of one side as A1,A2",
        ) from None
    except IsADirectoryError:
        _unreadable(name, "it is a directory")
    except OSError as error:
        _unreadable(name, error.strerror or str(error))
    except ValueError as error:
        if isinstance(error, NotAReport):
            raise RecordingError("not-a-report", f"{name!r}: {error}", _WRITE_ONE) from error
        _unreadable(name, str(error))  # a name with a NUL in it


def _unreadable(name: str, why: str) -> NoReturn:
    raise RecordingError(
        "file-unreadable", f"cannot read {name!r}: {why}", "give a file that you may read"
    )


def _opened(name: str) -> IO[bytes]:
    file = open(name, "rb")  # noqa: SIM115
    if stat.S_ISBLK(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is a disk")
    return file


def _run(name: str, file: IO[bytes]) -> Run:
    head = file.readline(DOCUMENT_BYTES_MAX)
    if head.startswith(SQLITE_MAGIC):
        return _recorded(name)
    return run_of(printable(os.fsencode(name)), _documents(head, file))


def _recorded(name: str) -> Run:
    with open_recording(name) as recording:
        window = document(recording.report())
        return run_of(printable(os.fsencode(name)), map(document, recording.intervals()), window)


def _documents(head: bytes, file: IO[bytes]) -> Iterator[Any]:
    """One document over many lines, or one on each."""
    if not head.strip():
        head += _bounded(file)
    first, is_whole = _line(head)
    if not is_whole:
        yield _parsed(head + _bounded(file), "")
        return
    yield first
    number = 1
    while True:
        line = file.readline(DOCUMENT_BYTES_MAX)
        number += 1
        if not line:
            return
        if line.strip():
            yield _parsed(line, f"line {number} ")


def _bounded(file: IO[bytes]) -> bytes:
    rest = file.read(DOCUMENT_BYTES_MAX)
    if len(rest) == DOCUMENT_BYTES_MAX:
        raise NotAReport(f"it is larger than any report ({DOCUMENT_BYTES_MAX >> 20} MiB)")
    return rest


def _line(line: bytes) -> Tuple[Any, bool]:
    """The document on this line; False when it goes on on the next."""
    try:
        return _checked(_json(line)), True
    except (ValueError, RecursionError) as error:
        if isinstance(error, NotAReport):
            raise
        return None, False


def _parsed(text: bytes, where: str) -> Any:
    if not text.strip():
        raise NotAReport("it is empty")
    try:
        return _checked(_json(text))
    except NotAReport as error:
        raise NotAReport(f"{where}{error}") from error
    except (ValueError, RecursionError) as error:
        raise NotAReport(f"{where or 'it '}{_why_no_json(text, error)}") from error


def _why_no_json(text: bytes, error: Exception) -> str:
    # A document begins with its schema: what begins like one and breaks off was cut.
    if text.lstrip().startswith(b"{") and isinstance(error, json.JSONDecodeError):
        rest = error.doc[error.pos :].rstrip()
        # Cut behind a token, within a word of JSON, or within a string.
        is_cut = any(word.startswith(rest) for word in ("null", "true", "false"))
        if is_cut or "Unterminated" in error.msg:
            return "ends in the middle: it was truncated, or its writer was killed"
        return f"is not JSON: {error.msg}, line {error.lineno} column {error.colno}"
    return "is not JSON"


def _json(text: bytes) -> Any:
    return json.loads(text.decode("utf-8"), parse_constant=_not_finite)


def _not_finite(word: str) -> NoReturn:
    raise NotAReport(f"holds {word}, which is not valid in a report")


def _checked(found: Any) -> Any:
    """The document, if it says that it is one that we know.

    Raises:
        RecordingError: `newer-report`.
        NotAReport: it is something else.
    """
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema == REPORT_SCHEMA:
        return found
    family = REPORT_SCHEMA.partition("/")[0] + "/"
    if isinstance(schema, str) and schema.startswith(family) and schema[len(family) :].isdecimal():
        raise RecordingError(
            "newer-report",
            f"a document is {schema}; this version reads {REPORT_SCHEMA}",
            "upgrade udsprobe, or measure again with this version",
        )
    if isinstance(schema, str):
        raise NotAReport(f"is a {schema[:60]!r} document, not {REPORT_SCHEMA!r}")
    raise NotAReport(f"is JSON, but not a {REPORT_SCHEMA!r} document")
