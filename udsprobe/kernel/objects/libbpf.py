"""libbpf through ctypes: the only place that loads it or calls it.

Thin and typed: errno becomes `LibbpfError`, nothing is interpreted. Works
with libbpf 1.x; no bindings package of PyPI carries iterators and mmap.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import udsprobe
from udsprobe.errors import KernelCannotError

LIBRARY = "libbpf.so.1"
# Where scripts/build_libbpf puts one, for releases that have libbpf 0.x.
OWN = Path(udsprobe.__file__).resolve().parent / "_bpf" / LIBRARY
BTF_KIND_FUNC = 12
TRACING_PROGRAM = 26  # BPF_PROG_TYPE_TRACING (include/uapi/linux/bpf.h)
STATS_RUN_TIME = 0
MAX_LOG_LINES = 400

_pointer, _int, _uint, _size, _text = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_char_p,
)
_BATCH: List[Any] = [_int, *[_pointer] * 4, ctypes.POINTER(_uint), _pointer]
SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "libbpf_version_string": (_text, []),
    "libbpf_set_print": (_pointer, [_pointer]),
    "bpf_object__open_mem": (_pointer, [_text, _size, _pointer]),
    "bpf_object__btf": (_pointer, [_pointer]),
    "bpf_object__load": (_int, [_pointer]),
    "bpf_object__close": (None, [_pointer]),
    "bpf_object__find_map_by_name": (_pointer, [_pointer, _text]),
    "bpf_object__find_program_by_name": (_pointer, [_pointer, _text]),
    "btf__raw_data": (_pointer, [_pointer, ctypes.POINTER(_uint)]),
    "btf__load_vmlinux_btf": (_pointer, []),
    "btf__find_by_name_kind": (_int, [_pointer, _text, _uint]),
    "btf__type_by_id": (_pointer, [_pointer, _uint]),
    "btf__free": (None, [_pointer]),
    "bpf_object__next_map": (_pointer, [_pointer, _pointer]),
    "bpf_map__fd": (_int, [_pointer]),
    "bpf_map__name": (_text, [_pointer]),
    "bpf_map__type": (_uint, [_pointer]),
    "bpf_map__key_size": (_uint, [_pointer]),
    "bpf_map__value_size": (_uint, [_pointer]),
    "bpf_map__set_max_entries": (_int, [_pointer, _uint]),
    "bpf_map__map_flags": (_uint, [_pointer]),
    "bpf_map__set_map_flags": (_int, [_pointer, _uint]),
    "bpf_map__reuse_fd": (_int, [_pointer, _int]),
    "bpf_map__max_entries": (_uint, [_pointer]),
    "bpf_map__initial_value": (_pointer, [_pointer, ctypes.POINTER(_size)]),
    "bpf_program__set_autoload": (_int, [_pointer, ctypes.c_bool]),
    "bpf_program__set_attach_target": (_int, [_pointer, _int, _text]),
    "bpf_program__attach": (_pointer, [_pointer]),
    "bpf_program__attach_iter": (_pointer, [_pointer, _pointer]),
    "bpf_program__attach_perf_event": (_pointer, [_pointer, _int]),
    "bpf_program__fd": (_int, [_pointer]),
    "bpf_link__fd": (_int, [_pointer]),
    "bpf_link__destroy": (_int, [_pointer]),
    "libbpf_find_vmlinux_btf_id": (_int, [_text, _int]),
    "bpf_prog_load": (_int, [_int, _text, _text, _text, _size, _pointer]),
    "bpf_link_create": (_int, [_int, _int, _int, _pointer]),
    "bpf_iter_create": (_int, [_int]),
    "bpf_map_lookup_elem": (_int, [_int, _pointer, _pointer]),
    "bpf_map_update_elem": (_int, [_int, _pointer, _pointer, ctypes.c_uint64]),
    "bpf_map_lookup_and_delete_elem": (_int, [_int, _pointer, _pointer]),
    "bpf_map_delete_elem": (_int, [_int, _pointer]),
    "bpf_map_get_next_key": (_int, [_int, _pointer, _pointer]),
    "bpf_map_lookup_batch": (_int, _BATCH),
    "bpf_map_lookup_and_delete_batch": (_int, _BATCH),
    "bpf_obj_get_info_by_fd": (_int, [_int, _pointer, ctypes.POINTER(_uint)]),
    "bpf_enable_stats": (_int, [_int]),
    "bpf_prog_test_run_opts": (_int, [_int, _pointer]),
}
# The kernel's own, for a trampoline on arm64 before 6.4 too; no C library has words for it
# (include/linux/errno.h).
ENOTSUPP = 524
PRINT = ctypes.CFUNCTYPE(_int, _int, _text, _pointer)


class LibbpfError(OSError):
    """A call failed; `errno` says why, `log` holds what libbpf printed."""

    def __init__(self, what: str, code: int, log: str = "") -> None:
        super().__init__(code, f"{what}: {_words(code)}")
        self.log = log


def _words(code: int) -> str:
    return "not supported by this kernel" if code == ENOTSUPP else os.strerror(code)


class LoadOptions(ctypes.Structure):
    """`struct bpf_prog_load_opts` (libbpf's bpf.h) up to the log."""

    _fields_ = [
        ("sz", _size),
        ("attempts", _int),
        ("expected_attach_type", _int),
        ("prog_btf_fd", _uint),
        ("prog_flags", _uint),
        ("prog_ifindex", _uint),
        ("kern_version", _uint),
        ("attach_btf_id", _uint),
        ("attach_prog_fd", _uint),
        ("attach_btf_obj_fd", _uint),
        ("fd_array", _pointer),
        ("func_info", _pointer),
        ("func_info_cnt", _uint),
        ("func_info_rec_size", _uint),
        ("line_info", _pointer),
        ("line_info_cnt", _uint),
        ("line_info_rec_size", _uint),
        ("log_level", _uint),
        ("log_size", _uint),
        ("log_buf", _pointer),
    ]


class ProgInfo(ctypes.Structure):
    """`struct bpf_prog_info` up to `recursion_misses` (Linux uapi/linux/bpf.h)."""

    _fields_ = [
        ("type", _uint),
        ("id", _uint),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_prog_len", _uint),
        ("xlated_prog_len", _uint),
        ("jited_prog_insns", ctypes.c_uint64),
        ("xlated_prog_insns", ctypes.c_uint64),
        ("load_time", ctypes.c_uint64),
        ("created_by_uid", _uint),
        ("nr_map_ids", _uint),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
        ("ifindex", _uint),
        ("gpl_compatible", _uint),
        ("netns_dev", ctypes.c_uint64),
        ("netns_ino", ctypes.c_uint64),
        ("nr_jited_ksyms", _uint),
        ("nr_jited_func_lens", _uint),
        ("jited_ksyms", ctypes.c_uint64),
        ("jited_func_lens", ctypes.c_uint64),
        ("btf_id", _uint),
        ("func_info_rec_size", _uint),
        ("func_info", ctypes.c_uint64),
        ("nr_func_info", _uint),
        ("nr_line_info", _uint),
        ("line_info", ctypes.c_uint64),
        ("jited_line_info", ctypes.c_uint64),
        ("nr_jited_line_info", _uint),
        ("line_info_rec_size", _uint),
        ("jited_line_info_rec_size", _uint),
        ("nr_prog_tags", _uint),
        ("prog_tags", ctypes.c_uint64),
        ("run_time_ns", ctypes.c_uint64),
        ("run_cnt", ctypes.c_uint64),
        ("recursion_misses", ctypes.c_uint64),
    ]


class Libbpf:
    """The loaded library, its log and its functions with checked results."""

    def __init__(self) -> None:
        self.functions = _load_library()
        self._log: List[str] = []
        self._libc = ctypes.CDLL(None)
        # ctypes frees a callback nobody holds.
        self._print, self._silence = PRINT(self._printed), PRINT()
        self.functions.libbpf_set_print(self._print)

    def _printed(self, _level: int, form: bytes, arguments: int) -> int:
        # The verifier's log comes in one piece, and its end is what matters.
        text = ctypes.c_char_p()
        if self._libc.vasprintf(ctypes.byref(text), form, _pointer(arguments)) < 0:
            return 0
        self._log += (text.value or b"").decode(errors="replace").splitlines()
        self._libc.free(text)
        del self._log[:-MAX_LOG_LINES]
        return 0

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """While it lasts nothing is logged: opening and loading print 5,000 messages, each of
        which would wait for whatever other thread is in Python."""
        self.functions.libbpf_set_print(self._silence)
        try:
            yield
        finally:
            self.functions.libbpf_set_print(self._print)

    def log(self) -> str:
        """What libbpf and the verifier said last, at most 400 lines."""
        return "\n".join(self._log)

    def version(self) -> str:
        """Its own version, `1.1`."""
        text: bytes = self.functions.libbpf_version_string()
        return text.decode("ascii", "replace").lstrip("v")

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function that returns a negative errno on failure.

        Raises:
            LibbpfError: with the errno.
        """
        result: int = getattr(self.functions, name)(*arguments)
        if result < 0:
            # libbpf 1.x returns -errno, its thin bpf() wrappers too.
            raise LibbpfError(name, -result, self.log())
        return result

    def pointer(self, name: str, *arguments: Any) -> int:
        """Call a function that returns NULL and sets errno on failure.

        Raises:
            LibbpfError: with the errno.
        """
        result: Optional[int] = getattr(self.functions, name)(*arguments)
        if not result:
            raise LibbpfError(name, ctypes.get_errno(), self.log())
        return result


@cache
def libbpf() -> Libbpf:
    """The one instance.

    Raises:
        KernelCannotError: `no-libbpf`, naming the packages.
    """
    return Libbpf()


def program_info(descriptor: int) -> ProgInfo:
    """Run time (when statistics are on), run count and recursion misses of a program."""
    info = ProgInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    libbpf().call("bpf_obj_get_info_by_fd", descriptor, ctypes.addressof(info), ctypes.byref(size))
    return info


def _load_library() -> Any:
    try:
        library = ctypes.CDLL(str(OWN) if OWN.is_file() else LIBRARY, use_errno=True)
        for name, (result, arguments) in SIGNATURES.items():
            function: Callable[..., Any] = getattr(library, name)
            function.restype = result  # type: ignore[attr-defined]
            function.argtypes = arguments  # type: ignore[attr-defined]
    except (OSError, AttributeError) as error:
        raise KernelCannotError(
            "no-libbpf",
            f"cannot use {LIBRARY} ({error})",
            "install it: Debian/Ubuntu `apt install libbpf1`, Fedora `dnf install libbpf`, "
            "Alpine `apk add libbpf`, or from a checkout scripts/setup, which builds it where the "
            "release has only libbpf 0.x; `udsprobe listeners` works without probes",
        ) from error
    return library
