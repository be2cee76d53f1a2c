"""The comparison as JSON, exactly what `docs/compare.schema.json` describes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Dict

from udsprobe.compare.comparison import Comparison
from udsprobe.views.documents.report_document import utf8

_SIGNIFICANT_DIGITS = 6


def document(comparison: Comparison) -> Dict[str, Any]:
    """The comparison as plain values, `schema` first; numbers have 6 significant digits.

    Undecodable bytes of file names are written out as `\\xNN`.
    """
    plain: Dict[str, Any] = _plain(asdict(comparison))
    return {"schema": plain.pop("schema"), **plain}


def json_text(comparison: Comparison) -> str:
    """Indented ASCII, ends with a newline."""
    return json.dumps(document(comparison), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
