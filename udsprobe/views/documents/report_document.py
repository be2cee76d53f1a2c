"""The report document: a `Report` as JSON, exactly what `docs/report.schema.json` describes.

Knows the report's dataclasses and nothing else: field names and their order
are the document's. Strings pass through as they are, made safe to print by
JSON's own escapes.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, Dict, Optional

from udsprobe.model.report import Report

_DECIMALS = 3
# Ratios far below one, rounded to significant digits where they are computed.
_NOT_ROUNDED = frozenset({"syscalls_per_request"})
# Thirteen shares have to sum to 1.
_DECIMALS_OF = {"time": 6}


def document(report: Report) -> Dict[str, Any]:
    """The report as dicts, lists, strings, numbers, booleans and None; `schema` first.

    Floats have at most 3 decimals, shares 6. Undecodable bytes (lone surrogates) are
    written out as `\\xNN`, so that every string is valid UTF-8.
    """
    plain = plain_object(report)
    return {"schema": plain.pop("schema"), **plain}


def json_text(report: Report) -> str:
    """One document for a file or a pipe: indented ASCII, ends with a newline.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def json_line(report: Report) -> str:
    """One document as one line of ASCII, newline included.

    Raises:
        ValueError: a number is not finite.
    """
    # Part by part: its objects and the pieces of its text take ten times as much as the line.
    names = sorted((each.name for each in fields(report)), key=lambda name: name != "schema")
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    parts = (encode({name: _member(report, name, _DECIMALS)})[1:-1] for name in names)
    return "{" + ",".join(parts) + "}\n"


def plain_object(value: Any) -> Dict[str, Any]:
    """Any dataclass as the report is written: floats rounded, strings valid UTF-8."""
    return _object(value, _DECIMALS)


def _object(value: Any, decimals: Optional[int]) -> Dict[str, Any]:
    return {
        # `class` is no name that Python allows.
        field.name.rstrip("_"): _member(value, field.name, decimals)
        for field in fields(value)
    }


def _member(value: Any, name: str, decimals: Optional[int]) -> Any:
    own = None if name in _NOT_ROUNDED else _DECIMALS_OF.get(name, decimals)
    return _plain(getattr(value, name), own)


def _plain(value: Any, decimals: Optional[int]) -> Any:
    if isinstance(value, float):
        return value if decimals is None else round(value, decimals)
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each, decimals) for each in value]
    if isinstance(value, dict):
        return {utf8(key): _plain(each, decimals) for key, each in value.items()}
    if is_dataclass(value):
        return _object(value, decimals)
    return value


def utf8(text: str) -> str:
    """`text` without lone surrogates: bytes that were not UTF-8 as `\\xNN`."""
    return text if text.isascii() else "".join(map(_encodable, text))


def _encodable(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, as os.fsdecode gives it
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return f"\\u{code:04x}"
    return character
