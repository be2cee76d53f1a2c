"""What a guest brought back: the states the probes claim, and what the tests say to them.

Pure but for reading the two files. Knows junit.xml as pytest writes it, and
`probe.measurements` of a report.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple
from xml.etree import ElementTree

FAILURES = ("failure", "error")


@dataclass(frozen=True)
class Case:
    """One test case; `outcome` is `passed`, `failed` or `skipped`, `words` the reason."""

    name: str
    measurement: Optional[str]
    outcome: str
    words: str


@dataclass(frozen=True)
class Claim:
    """A measurement's state as the report of a real observation gives it."""

    state: str
    reason: Optional[str]


@dataclass(frozen=True)
class Evidence:
    """Of one kernel with one strategy.

    Attributes:
        strategy: that was used; None when the probes could not be loaded.
        claims: by name of the measurement.
        tests: every test case that was run or skipped.
        trouble: why there is nothing, in one line; None when there is.
    """

    strategy: Optional[str]
    claims: Mapping[str, Claim]
    tests: Tuple[Case, ...]
    trouble: Optional[str] = None

    def counts(self) -> Mapping[str, int]:
        """Outcome → how many tests."""
        return Counter(test.outcome for test in self.tests)

    def cell(self, measurement: str) -> str:
        """`on` only when tests of the measurement ran here and all passed."""
        claim = self.claims.get(measurement)
        if claim is None:
            return f"off ({self.trouble or 'unknown to this strategy'})"
        if claim.state != "on":
            return f"{claim.state} ({claim.reason})"
        ran = [test for test in self.tests if test.measurement == measurement]
        failed = [test.name for test in ran if test.outcome == "failed"]
        if failed:
            return f"**failed** ({', '.join(failed)})"
        passed = sum(test.outcome == "passed" for test in ran)
        return "on" if passed else "not tested"


def evidence(results: Path) -> Evidence:
    """Read `report.json` and `junit.xml` of a guest."""
    tests = _tests(results / "junit.xml")
    try:
        probe = json.loads((results / "report.json").read_text())["probe"]
    except (OSError, ValueError, KeyError):
        said = results / "refusal"
        line = said.read_text().strip().splitlines()[:1] if said.is_file() else []
        return Evidence(None, {}, tests, line[0] if line else "the guest brought no report")
    return Evidence(probe["strategy"], _claims(probe["measurements"]), tests)


def _claims(measurements: object) -> Dict[str, Claim]:
    if isinstance(measurements, dict):
        rows = [{"name": name, **row} for name, row in measurements.items()]
    else:
        assert isinstance(measurements, list)
        rows = measurements
    return {row["name"]: Claim(row["state"], row.get("reason")) for row in rows}


def _tests(path: Path) -> Tuple[Case, ...]:
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return ()
    return tuple(_test(case) for case in cases)


def _test(case: ElementTree.Element) -> Case:
    outcome, words = "passed", ""
    for child in case:
        if child.tag in FAILURES:
            outcome, words = "failed", child.get("message", "")
        elif child.tag == "skipped":
            outcome, words = "skipped", child.get("message", "")
    measured = [
        found.get("value") for found in case.iter("property") if found.get("name") == "measurement"
    ]
    module = case.get("classname", "").rsplit(".", 1)[-1]
    return Case(f"{module}::{case.get('name', '')}", next(iter(measured), None), outcome, words)


def skips(found: Evidence) -> List[str]:
    """Each reason to skip once, with how many tests it took."""
    counted = Counter(test.words for test in found.tests if test.outcome == "skipped")
    return [f"{count} × {words}" for words, count in sorted(counted.items())]
