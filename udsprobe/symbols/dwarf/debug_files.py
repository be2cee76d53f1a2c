"""Where the symbols and the debug information of a file are, when they are apart from it."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from udsprobe.symbols.elf_image import ElfImage

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DELETED = b" (deleted)"
_BY_BUILD_ID = "/usr/lib/debug/.build-id"
# Of C, C++ and Java, and what interprets: in these nothing is the program's own. Their names say
# all that people want to know of them.
_LIBRARY = re.compile(
    rb"(libc|libpthread|librt|libdl|libm|libresolv|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s"
    rb"|ld-musl|ld-linux|ld|libjvm|libjava|libjli|libnio|libnet)[-.].*"
    rb"|(node|nodejs|java)|(lib)?(node|python|php(-fpm|-cgi)?|ruby|perl)[\d.-]*(\.so.*)?"
)


class DebugFile(NamedTuple):
    """One that was opened; the descriptor is its receiver's.

    Attributes:
        path: of it, where its root is `/`.
    """

    image: ElfImage
    descriptor: int
    path: str


def is_library(path: bytes) -> bool:
    """Of a language, or its interpreter."""
    name = path[: -len(_DELETED)] if path.endswith(_DELETED) else path
    return _LIBRARY.fullmatch(name.rpartition(b"/")[2]) is not None


def debug_names(image: ElfImage, path: bytes) -> Tuple[str, ...]:
    """Where distributions put the file with an image's symbols, the surest first."""
    found = _by_build_id(image.build_id)
    if image.debug_link:
        place = path.decode("utf-8", "surrogateescape").rpartition("/")[0]
        found += (f"{place}/.debug/{image.debug_link}", f"/usr/lib/debug{place}/{image.debug_link}")
    return found


def debug_file(image: ElfImage, path: bytes, roots: Sequence[str]) -> Optional[DebugFile]:
    """Of the same build: that of another one would name other functions.

    Args:
        path: of the image.
        roots: file systems that are looked into, the target's and our own.
    """
    for name in debug_names(image, path):
        for root in roots:
            found = _opened(root + name, image.build_id)
            if found is not None and not (found[0].is_stripped and not found[0].has_debug_info):
                return DebugFile(*found, name)
            if found is not None:
                os.close(found[1])
    return None


def shared_file(image: ElfImage, path: str, roots: Sequence[str]) -> Optional[int]:
    """A descriptor of what dwz has put apart for several files; None: it is not there.

    Args:
        image, path: of the file with debug information.
    """
    # `..` stays below the root: the path is the file's word.
    beside = normpath(join("/", dirname(path), image.shared_link))
    for name in (beside, *_by_build_id(image.shared_build_id)) if image.shared_link else ():
        for root in roots:
            found = _opened(root + name, image.shared_build_id)
            if found is not None and found[0].has_debug_info:
                return found[1]
            if found is not None:
                os.close(found[1])
    return None


def _by_build_id(build_id: str) -> Tuple[str, ...]:
    if len(build_id) <= 2:
        return ()
    return (f"{_BY_BUILD_ID}/{build_id[:2]}/{build_id[2:]}.debug",)


def _opened(path: str, build_id: str) -> Optional[Tuple[ElfImage, int]]:
    from udsprobe.symbols.elf_image import ElfImage

    with suppress(OSError, ValueError):
        descriptor = os.open(path, _OPEN)
        try:
            with open(descriptor, "rb", closefd=False) as file:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    image = ElfImage(file)
                    if build_id and image.build_id == build_id:
                        return image, os.dup(descriptor)
        finally:
            os.close(descriptor)
    return None
