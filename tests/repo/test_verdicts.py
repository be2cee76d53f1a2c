"""docs/verdicts.md tells every cause and every threshold, with its value and reason."""

from __future__ import annotations

import json
import re
from typing import List

from tests.repo.source_tree import ROOT
from udsprobe.rules.causes import CAUSES


def page() -> str:
    return (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")


def threshold_rows() -> List[str]:
    """The table of the page, made from the source."""
    source = (ROOT / "udsprobe" / "rules" / "thresholds.py").read_text(encoding="utf-8")
    rows, reason = [], []
    for line in source.splitlines():
        if line.startswith("# --"):
            reason = []
        elif line.startswith("# "):
            reason.append(line[2:])
        elif re.match(r"[A-Z_]+ = ", line):
            name, value = line.split(" = ")
            rows.append(f"| `{name}` | {value} | {' '.join(reason)} |")
            reason = []
    return rows


def test_the_causes_are_those_of_the_source() -> None:
    table = page().split("## Causes")[1].split("\n## ")[0].splitlines()
    assert [line for line in table if line.startswith("| `")] == [
        f"| `{cause.name}` | {cause.shape} | {cause.likely} | {cause.look} |"
        for cause in CAUSES.values()
    ]


def test_the_schema_has_these_causes() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
    for name in ("Verdict", "RunnerUp"):
        assert schema["$defs"][name]["properties"]["cause"]["enum"] == list(CAUSES)
    classes = schema["$defs"]["Verdict"]["properties"]["class"]["enum"]
    assert set(classes) == {cause.class_ for cause in CAUSES.values()}


def test_the_thresholds_are_those_of_the_source() -> None:
    table = page().split("## Thresholds")[1].strip().splitlines()
    assert [line for line in table if line.startswith("| `")] == threshold_rows()


def test_every_threshold_has_a_reason() -> None:
    assert [row for row in threshold_rows() if row.endswith("|  |")] == []
