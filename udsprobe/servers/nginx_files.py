"""An nginx configuration from its files: crossplane's tokens, made one tree with its includes.

Knows nginx's statements and where includes go. Tokens are crossplane's; the tree
is made here, because crossplane takes a missing `;` before `}` as it is and opens
included files by itself, from the wrong root.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple

from udsprobe.doctor.facts import ConfigError
from udsprobe.doctor.nginx.config import Directive
from udsprobe.servers.target_files import TargetFiles, Unreadable

FILES_MAX = 5000
BYTES_MAX = 16 << 20
DEPTH_MAX = 20
NESTING_MAX = 100
ERRORS_MAX = 20
Token = Tuple[str, int, bool]


class Broken(Exception):
    """The text is no nginx configuration. Says nothing of what it holds.

    Attributes:
        line: where.
    """

    def __init__(self, says: str, line: int) -> None:
        super().__init__(says)
        self.line = line


@dataclass
class NginxTree:
    """What was read.

    Attributes:
        tree: statements of the main context; of no use when there are errors.
        files: path as nginx names it and time of last change, in order.
        lines: in all files.
    """

    tree: Tuple[Directive, ...] = ()
    files: List[Tuple[str, float]] = field(default_factory=list)
    lines: int = 0
    errors: List[ConfigError] = field(default_factory=list)


def read_tree(files: TargetFiles, path: str, directives: str = "") -> NginxTree:
    """The configuration that starts with `path`.

    Args:
        path: as the process sees it. directives: of `-g`.
    """
    return _Including(files, path).whole(directives)


class _Including:
    """One reading: follows includes, adds up what it costs."""

    def __init__(self, files: TargetFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._directory = path.rpartition("/")[0]
        self._bytes = 0
        self._found = NginxTree()

    def whole(self, directives: str) -> NginxTree:
        given = self._statements(directives.encode("utf-8", "surrogateescape"), "-g", 0)
        self._found.tree = (*given, *self._file(self._path, 0))
        return self._found

    def _file(self, path: str, depth: int) -> Tuple[Directive, ...]:
        try:
            if len(self._found.files) >= FILES_MAX or self._bytes >= BYTES_MAX:
                raise Unreadable(f"more than {FILES_MAX} files or {BYTES_MAX >> 20} MiB")
            content = self._files.read(path, BYTES_MAX - self._bytes)
        except Unreadable as error:
            self._error("unreadable", path, str(error))
            return ()
        self._bytes += len(content.raw)
        self._found.files.append((path, content.changed_s))
        self._found.lines += content.raw.count(b"\n")
        return self._statements(content.raw, path, depth)

    def _statements(self, raw: bytes, path: str, depth: int) -> Tuple[Directive, ...]:
        try:
            parsed = statements(raw, path)
        except Broken as error:
            self._error("broken", path, str(error), error.line)
            return ()
        return self._included(parsed, depth)

    def _included(self, block: Sequence[Directive], depth: int) -> Tuple[Directive, ...]:
        whole: List[Directive] = []
        for one in block:
            if one.name == "include" and one.block is None and one.args:
                whole += self._include(one, depth)
            elif one.block:
                inner = self._included(one.block, depth)
                whole.append(Directive(one.name, one.args, one.file, one.line, inner))
            else:
                whole.append(one)
        return tuple(whole)

    def _include(self, one: Directive, depth: int) -> Iterable[Directive]:
        pattern = one.args[0]
        if not pattern.startswith("/"):
            pattern = f"{self._directory}/{pattern}"
        if depth >= DEPTH_MAX:
            self._error("broken", one.file, f"files include each other, {depth} deep", one.line)
            return
        try:
            paths = self._files.matching(pattern)
        except Unreadable as error:
            self._error("unreadable", one.file, f"its include {error}", one.line)
            return
        for path in paths:
            # One is enough to say nothing about the rest.
            if len(self._found.errors) < ERRORS_MAX:
                yield from self._file(path, depth + 1)

    def _error(self, reason: str, path: str, says: str, line: Optional[int] = None) -> None:
        self._found.errors.append(ConfigError(reason, path, says, line))


def statements(raw: bytes, file: str) -> Tuple[Directive, ...]:
    """The statements of one file, includes as they stand.

    Raises:
        Broken: nginx would not take it: braces, quotes or a `;` are missing.
    """
    root: List[Directive] = []
    open_blocks: List[Tuple[str, Tuple[str, ...], int, List[Directive]]] = [("", (), 0, root)]
    words: List[Token] = []
    line = 1
    for token, line, quoted in _tokens(raw):
        if quoted or token not in (";", "{", "}"):
            if quoted or not token.startswith("#"):
                words.append((token, line, quoted))
        elif token == "}":
            if words:
                raise Broken("a `;` is missing before `}`", words[-1][1])
            if len(open_blocks) == 1:
                raise Broken("there is one `}` too many", line)
            name, args, at, block = open_blocks.pop()
            open_blocks[-1][3].append(Directive(name, args, file, at, tuple(block)))
        else:
            name, args, at = _statement(words, token, line)
            words = []
            if token == "{":
                if len(open_blocks) > NESTING_MAX:
                    raise Broken(f"blocks are nested {NESTING_MAX} deep", line)
                open_blocks.append((name, args, at, []))
            else:
                open_blocks[-1][3].append(Directive(name, args, file, at))
    if words or len(open_blocks) > 1:
        at = words[0][1] if words else open_blocks[-1][2]
        raise Broken("it ends inside the statement or block that starts here", at)
    return tuple(root)


def _statement(words: List[Token], end: str, line: int) -> Tuple[str, Tuple[str, ...], int]:
    if not words:
        raise Broken(f"there is no directive before `{end}`", line)
    name, at, _ = words[0]
    if _swallowed_another(words, end):
        raise Broken("a `;` is missing at the end of this directive", at)
    return name, tuple(word for word, _, _ in words[1:]), at


def _swallowed_another(words: Sequence[Token], end: str) -> bool:
    """Whether a directive on a later line was taken as an argument: its `;` is missing."""
    name, at, _ = words[0]
    if all(line == at for _, line, _ in words):
        return False
    from crossplane.analyzer import DIRECTIVES, analyze
    from crossplane.errors import NgxParserDirectiveError

    starts = [
        word
        for (word, line, quoted), before in zip(words[1:], words)
        if line > before[1] and not quoted
    ]
    if name not in DIRECTIVES or not any(word in DIRECTIVES for word in starts):
        return False
    statement = {"directive": name, "line": at, "args": [word for word, _, _ in words[1:]]}
    try:
        analyze("", statement, end, ctx=(), check_ctx=False)
    except NgxParserDirectiveError:
        return True
    return False


def _tokens(raw: bytes) -> Iterator[Token]:
    import crossplane
    from crossplane.errors import NgxParserSyntaxError

    # crossplane opens by name, and in its own root: it gets a file in memory.
    descriptor = os.memfd_create("nginx.conf", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(raw)
        yield from crossplane.lex(f"/proc/self/fd/{descriptor}")
    except NgxParserSyntaxError as error:
        raise Broken("braces do not match", error.lineno or 1) from None
    finally:
        os.close(descriptor)
