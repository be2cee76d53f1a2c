#!/usr/bin/env python3
"""Prints the messages that a rewrite changed most, before and after, as the rows of a table.

    scripts/reworded.py [--rows 50] [--now COMMIT] OLD..NEW …

Texts are the string constants of udsprobe/ without docstrings; what a program fills in is `…`. In
each range of commits, texts of one file that stand at the same place are a pair; a text that a
later range changes again stays with its first one. Left out: what COMMIT (HEAD) has no longer,
texts of fewer than four words, and pairs that change the same words as a pair before them. How
much a pair changed is the number of words that only one of its sides has.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from difflib import SequenceMatcher
from itertools import islice
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

FILLED_IN = "…"
WORDS_MIN = 4
# Of two texts at one place: less, and one is not the other's new wording.
ALIKE_MIN = 0.2
# Of the words that two pairs change: more, and it is the same change at another place.
SAME_CHANGE_MIN = 0.6
_TEMPLATE = re.compile(r"\{\w+(?::[^{}]*)?\}")
_WORD = re.compile(r"[\w'./@-]+|…")
Pair = Tuple[str, str]


class Reworded(NamedTuple):
    """One message."""

    before: str
    after: str

    @property
    def changed(self) -> Tuple[List[str], List[str]]:
        """The words that only its old and only its new text has."""
        old, new = words(self.before), words(self.after)
        gone: List[str] = []
        come: List[str] = []
        for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if what != "equal":
                gone += old[i:j]
                come += new[k:m]
        return gone, come

    @property
    def rank(self) -> Tuple[int, float]:
        """The larger, the more has changed: words, then their part of the text."""
        count = sum(map(len, self.changed))
        return count, count / (len(words(self.before)) + len(words(self.after)))


def words(text: str) -> List[str]:
    """Without what is between them."""
    return _WORD.findall(text)


class _Texts(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: List[str] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            plain = node.value.replace("{{", "{").replace("}}", "}")
            self.found.append(_TEMPLATE.sub(FILLED_IN, plain))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.found.append("".join(map(_part, node.values)))


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    inner = value.value if isinstance(value, ast.FormattedValue) else value
    if isinstance(inner, ast.IfExp) and isinstance(inner.body, ast.Constant):
        # `s` of a plural.
        return str(inner.body.value)
    return FILLED_IN


def texts(source: str) -> List[str]:
    """Of a Python file, in their order.

    Raises:
        SyntaxError: it is none.
    """
    visitor = _Texts()
    visitor.visit(ast.parse(source))
    return visitor.found


def pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    """What stands where something else stood; where counts differ, the most alike."""
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "replace":
            equal = j - i == m - k
            yield from zip(old[i:j], new[k:m]) if equal else _most_alike(old[i:j], new[k:m])


def _most_alike(old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    found = ((_alike(words(one), words(two)), one, two) for one in old for two in new)
    taken: Set[str] = set()
    for alike, one, two in sorted(found, reverse=True):
        if alike > ALIKE_MIN and not {one, two} & taken:
            taken |= {one, two}
            yield one, two


def _alike(one: Sequence[str], two: Sequence[str]) -> float:
    return SequenceMatcher(None, one, two, autojunk=False).ratio()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def _texts_at(commit: str, path: str) -> List[str]:
    return texts(_git("show", f"{commit}:{path}"))


def reworded(ranges: Sequence[str], now: str) -> List[Reworded]:
    """Those of all ranges that `now` still has, the most changed first."""
    firsts: Dict[str, Reworded] = {}
    for each in ranges:
        old, _, new = each.partition("..")
        for line in _git("diff", "--name-status", "-M30", old, new, "--", "udsprobe").splitlines():
            kind, *paths = line.split("\t")
            if kind[0] not in "MR" or not paths[-1].endswith(".py"):
                continue
            for before, after in pairs(_texts_at(old, paths[0]), _texts_at(new, paths[-1])):
                first = firsts.pop(before, Reworded(before, after))
                firsts[after] = Reworded(first.before, after)
    files = _git("ls-tree", "-r", "--name-only", now, "udsprobe").splitlines()
    kept = {text for path in files if path.endswith(".py") for text in _texts_at(now, path)}
    found = (each for after, each in firsts.items() if after in kept and _is_message(each))
    return sorted(found, key=lambda each: (each.rank, each.after), reverse=True)


def _is_message(pair: Reworded) -> bool:
    lengths = len(words(pair.before)), len(words(pair.after))
    return pair.before != pair.after and max(lengths) >= WORDS_MIN


def different(found: Sequence[Reworded]) -> Iterator[Reworded]:
    """Without those that change the same words as one before."""
    seen: List[Tuple[List[str], List[str]]] = []
    for each in found:
        gone, come = each.changed
        same = (min(_alike(gone, g), _alike(come, c)) > SAME_CHANGE_MIN for g, c in seen)
        if not any(same):
            seen.append((gone, come))
            yield each


def _cell(text: str) -> str:
    one = re.sub(f"{FILLED_IN}+", FILLED_IN, text)
    return " ".join(one.replace("|", "\\|").split())


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--now", default="HEAD")
    parser.add_argument("ranges", nargs="+", metavar="OLD..NEW")
    options = parser.parse_args()
    for each in islice(different(reworded(options.ranges, options.now)), options.rows):
        print(f"| {_cell(each.before)} | {_cell(each.after)} |")


if __name__ == "__main__":
    main()
