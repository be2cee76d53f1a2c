"""A diagnosis as JSON, exactly what `docs/doctor.schema.json` describes."""

from __future__ import annotations

import json
from typing import Any, Dict

from udsprobe.doctor.examine import Diagnosis
from udsprobe.views.documents.report_document import plain_object


def document(found: Diagnosis) -> Dict[str, Any]:
    """The diagnosis as dicts, lists, strings, numbers, booleans and None; `schema` first."""
    plain = plain_object(found)
    for finding, written in zip(found.findings, plain["findings"]):
        written["docs"] = finding.docs
    return {"schema": plain.pop("schema"), **plain}


def json_text(found: Diagnosis) -> str:
    """Indented ASCII, ends with a newline."""
    return json.dumps(document(found), indent=2, allow_nan=False) + "\n"
