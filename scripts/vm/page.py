"""`docs/support-matrix.md`: kernel × strategy × measurement, from what guests brought back.

Pure: evidence goes in, Markdown comes out.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from .evidence import Evidence, skips

Place = Tuple[str, str]  # release of the kernel, strategy asked for

HEAD = """# Which kernel measures what

Written by `scripts/kernel-matrix`; do not edit. Each column is a kernel of Debian, booted under
emulation, with this checkout and one strategy; `host` is the machine that wrote the page, not
emulated. Strategy `bcc` is for kernels without BTF; it is run in one that has it, with the headers
of that kernel and BCC of the same release, so that its counts can be compared. A cell is

- `on`: the report says so there, and tests that compare this measurement with the truth ran there
  and passed;
- `degraded` or `off`: with the reason the report gives;
- `not tested`: the report says `on`, and no test of this run compared it;
- **failed**: the report says `on`, and these tests say otherwise.
"""


def page(found: Mapping[Place, Evidence]) -> str:
    """The whole page."""
    parts = [HEAD, _table(found), "\n## Tests\n", _tests(found)]
    return "\n".join(parts)


def _table(found: Mapping[Place, Evidence]) -> str:
    notes: Dict[str, int] = {}
    head = ["measurement", *(f"{release} `{strategy}`" for release, strategy in found)]
    rows = [head, ["---"] * len(head)]
    for name in _names(found):
        cells = [_short(evidence.cell(name), notes) for evidence in found.values()]
        rows.append([f"`{name}`", *cells])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", *(f"{number}. {reason}" for reason, number in notes.items())]
    return "\n".join(lines) + "\n"


def _short(cell: str, notes: Dict[str, int]) -> str:
    word, _, rest = cell.partition(" (")
    if not rest:
        return cell
    number = notes.setdefault(rest.rstrip().removesuffix(")").replace("|", "\\|"), len(notes) + 1)
    return f"{word} [{number}]"


def _names(found: Mapping[Place, Evidence]) -> List[str]:
    names: Dict[str, None] = {}
    for evidence in found.values():
        names.update(dict.fromkeys(evidence.claims))
    return list(names)


def _tests(found: Mapping[Place, Evidence]) -> str:
    lines = []
    for (release, strategy), evidence in found.items():
        counts = evidence.counts()
        outcomes = ("passed", "failed", "skipped")
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes)
        lines.append(f"- {release} `{strategy}`: {told}")
        lines += [f"  - skipped {line}" for line in skips(evidence)]
        lines += [f"  - {evidence.trouble}"] if evidence.trouble else []
    return "\n".join(lines) + "\n"
