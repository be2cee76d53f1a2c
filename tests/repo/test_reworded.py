"""scripts/reworded.py: which old text belongs to which new one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.repo.source_tree import ROOT

SCRIPT = ROOT / "scripts" / "reworded.py"
OLD = '''"""All seats are taken, says the docstring."""
full = f"{count} of its seats {'are' if many else 'is'} taken by now"
late = "give {who} the lowest priority, who is nobody here"
kept = "the one that nobody has touched"
slug = "seats"
'''
NEW = '''"""The limit is reached, says the docstring."""
full = f"its limit of {limit} connections is reached"
late = "{who} gets the lowest priority (not part of this service)"
kept = "the one that nobody has touched"
slug = "limit"
'''


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_pairs_of_a_history(tmp_path: Path) -> None:
    git(tmp_path, "init")
    for text in (OLD, NEW):
        (tmp_path / "udsprobe").mkdir(exist_ok=True)
        (tmp_path / "udsprobe" / "words.py").write_text(text, encoding="utf-8")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-m", "words")
    argv = [sys.executable, str(SCRIPT), "HEAD~1..HEAD"]
    said = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, encoding="utf-8")
    assert said.stdout.splitlines() == [
        "| … of its seats are taken by now | its limit of … connections is reached |",
        "| give … the lowest priority, who is nobody here "
        "| … gets the lowest priority (not part of this service) |",
    ]
