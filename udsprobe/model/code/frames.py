"""One function of a stack, and whose it is: the kernel's, a language's, or the program's own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.compiled_sources import COMPILED

KERNEL, JIT = "[kernel]", "[jit]"
MODULES = frozenset(("<module>", "{main}", "<main>", "<top (required)>"))
"""Of Python, PHP, Ruby: the statements of a file, which all of a program is called by."""

IN_C = frozenset(("php:internal", "ruby:internal"))
"""In the place of the file of a function that PHP or Ruby has in C (udsprobe/symbols/php/stacks.py,
udsprobe/symbols/ruby/stacks.py)."""

NOT_KNOWN = "not known"
CUT = "…"
"""The end of a name that is too long to be shown."""

# By which every system call, fault or interrupt enters the kernel: x86_64, arm64.
_KERNEL_ENTRY = re.compile(
    r"entry_\w+|do_syscall_\w+|x64_sys_call|asm_\w+|el0\w*|do_el0_svc\w*|invoke_syscall\w*"
    r"|ret_from_fork\w*"
)
# The instruction alone, for any call: what it is for, its caller knows.
_ANY_CALL = re.compile(
    r"(internal/runtime/syscall|runtime/internal/syscall|syscall)(/linux)?"
    r"\.([Rr]aw)?(Vfork)?(Syscall6?|SyscallNoError)(\.abi0)?"
)
# Where threads and programs begin: everything is below them.
_ROOTS = frozenset(
    (
        *("_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main"),
        *("clone", "clone3", "__clone3", "start_thread", "main", "runtime.goexit"),
        *("runtime.main", "runtime.goexit.abi0", "std::rt::lang_start_internal"),
        # Of Node, whatever was awaited, or comes by a timer.
        *("processTicksAndRejections", "runNextTicks", "processTimers", "listOnTimeout"),
        *("processImmediate", "runMicrotasks", "callbackTrampoline"),
    )
)
# Of C, C++ and the Java virtual machine.
_LIBRARY = re.compile(
    r"(libc|libpthread|librt|libdl|libm|ld-musl|ld-linux|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s"
    r"|libjvm|libjava|libjli|libnio|libnet)[-.]"
)
# Packages of Go, by the first part of their paths, which no other package may have.
_GO = re.compile(
    r"(archive|bufio|bytes|cmp|compress|container|context|crypto|database|debug|embed|encoding"
    r"|errors|expvar|flag|fmt|go|hash|html|image|index|internal|io|iter|log|maps|math|mime|net|os"
    r"|path|plugin|reflect|regexp|runtime|slices|sort|strconv|strings|structs|sync|syscall"
    r"|testing|text|time|unicode|unique|unsafe|vendor|weak|golang\.org/x/sys)(/[\w./-]+?)?"
    # What compilers of C add to a function's name.
    r"\.(?!(part|constprop|isra|cold|hot|lto_priv|llvm|localalias|clone)\b)"
    # Paths of other packages begin with a host, which may be go.uber.org.
    r"(?![\w.-]+/)[\w(]"
)
_GO_RUNTIME = re.compile(r"(internal/)?runtime(/[\w/]+)?\.")
_PARKS = re.compile(r"runtime\.|(internal/)?sync\.runtime_")
_CPP_OR_RUST = re.compile(
    r"(\w+ )?(<?(std|core|alloc)|__gnu_cxx|__cxxabiv1)::(?!.* as (?!std|core|alloc))"
)
_JAVA = re.compile(r"(\S+ )?(java|javax|jdk|sun|com\.sun)\.")
# All in these is an interpreter's, or an extension of it: the program is what they interpret.
_INTERPRETERS = re.compile(
    r"(node|nodejs|python[\d.]*|php(-fpm|-cgi)?[\d.]*|ruby[\d.]*|perl[\d.]*|java|[^/]*\.cpython-[^/]*"
    r"|lib(node|python|php|ruby|perl)[^/]*\.so[^/]*)"
)
_LAUNCHER = re.compile(r"java|libjli\.so")
# A turn of an event loop: asyncio's, libuv's, libev's, libevent's, GLib's, gevent's, eventlet's,
# Tokio's and those of other runtimes of Rust.
_LOOPS = re.compile(
    r"(BaseEventLoop\.)?(run_forever|_run_once)|(Base)?Hub\.run|uv_run|ev_run|event_base_loop"
    r"|g_main_loop_run|mio::(\w+::)*(Poll::poll|Selector::select)"
    r"|polling::(\w+::)*Poller::wait\w*"
    r"|tokio::runtime::(scheduler|io|time|park|driver)::.*"
)
_SOURCES = re.compile(
    r"node:|php:|<frozen |.*/lib(64)?/python3\.\d+/(?!(site|dist)-packages/)"
    # Not those of gems, nor what Debian has of them.
    r"|ruby:|<internal:|.*/lib(64)?/ruby/\d+\.\d+\.\d+/"
    r"|.*/lib(64)?/ruby/(site_ruby/|vendor_ruby/)(\d+\.\d+\.\d+/)?(rubygems|bundler)[./]"
)


# Modules of Go have their version in the path.
_INSTALLED = re.compile(
    r"/(site-packages|dist-packages|node_modules|gems|vendor|vendor_ruby)/|@v\d"
)
# Java has no path of its own for what came with the program: clients, pools and frameworks.
_OF_JAVA = re.compile(
    r"(org\.(postgresql|mariadb|apache|eclipse|hibernate|springframework|jooq|mybatis|redisson)"
    r"|com\.(mysql|zaxxer|mongodb|datastax|microsoft|google|squareup|fasterxml|sun)"
    r"|io\.(lettuce|netty|grpc|vertx|micrometer|opentelemetry)|redis\.clients|oracle\.jdbc"
    r"|okhttp3|okio|reactor|kotlinx?|scala)\."
)
# What demanglers put behind the arguments of a function of C++.
_QUALIFIERS = re.compile(r"(?: const| volatile| &&?| \[clone [^\]]*\]| \(\.[\w.]+\))+$")
_BRIEF_MAX = 60


@lru_cache(maxsize=4096)
def brief(function: str) -> str:
    """A function of C++ or Java without its arguments and what it returns; any other as it is.

    `R v8::Json::Serialize<true>(v8::Handle<v8::Object>)` is `v8::Json::Serialize<true>`. Long
    arguments of templates are `…`.
    """
    named = _QUALIFIERS.sub("", function)
    # What had to be escaped is no demangler's.
    is_cut = named.endswith(CUT) and "\\" not in named
    begins = _first_group(named) if is_cut else _last_group(named)
    name = named[:begins]
    ends = named.endswith(")") or (is_cut and begins < len(named))
    if is_cut and begins == len(named) > _BRIEF_MAX and "<" in named:
        short = _without_templates(named)
        return short[_last_word(short) :]
    if not name or name.endswith(("operator", "::", " ", ".", "{")) or not ends:
        return function
    if "operator" not in name:
        name = name[_last_word(name) :]
    return name if len(name) <= _BRIEF_MAX else _without_templates(name)


def _first_group(text: str) -> int:
    """Where the first parenthesis is that is in no pair of brackets; its length where none is."""
    depth = 0
    for at, letter in enumerate(text):
        if letter == "(" and not depth:
            return at
        depth += {"<": 1, ">": -1}.get(letter, 0)
    return len(text)


def _last_group(text: str) -> int:
    """Where the pair of parentheses begins that ends the text; its length where none does."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if not depth:
            return at if text[at] == "(" else len(text)
    return len(text)


def _last_word(text: str) -> int:
    """Behind the last space that is in no pair of brackets."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, ">": 1, "(": -1, "<": -1}.get(text[at], 0)
        if text[at] == " " and not depth:
            return at + 1
    return 0


def _without_templates(name: str) -> str:
    """`f<…>::g`, also where the name was cut in a bracket."""
    kept, depth = "", 0
    for letter in name:
        if letter == ">":
            depth -= 1
        if depth == 0:
            kept += letter
        if letter == "<":
            depth += 1
            kept += "…" if depth == 1 else ""
    return f"{kept}>" if depth > 0 else kept


class Frame(NamedTuple):
    """One function of a stack; None: not known."""

    function: Optional[str]
    module: Optional[str]
    file: Optional[str]
    line: Optional[int]

    @property
    def of_script(self) -> bool:
        """Its language has an interpreter, or a compiler at run time, with functions of its own."""
        return is_script(self.file)

    def named(self) -> str:
        """`verify (auth.js:12)`, `memcpy (libc.so.6)`, `not known (nginx)`."""
        return _named(self)


@lru_cache(maxsize=4096)
def _named(frame: Frame) -> str:
    # One text for all stacks that it is in, of all reports.
    where = frame.module or ""
    if frame.file:
        where = frame.file.rpartition("/")[2]
        where += f":{frame.line}" if frame.line is not None else ""
    name = brief(frame.function) if frame.function else NOT_KNOWN
    return f"{name} ({where})" if where else name


def bare(named: str) -> str:
    """The function alone of what `Frame.named` says."""
    return named.partition(" (")[0]


def is_script(file: Optional[str]) -> bool:
    """A source file, and none that a compiler has made ready."""
    return bool(file) and not str(file).endswith(COMPILED)


@lru_cache(maxsize=2048)
def frames_of(text: str) -> Tuple[Frame, ...]:
    """The outermost first, as `StackCounts.frames` has them."""
    return tuple(map(_frame_of, text.split("\n")))


@lru_cache(maxsize=16384)
def _frame_of(line: str) -> Frame:
    function, module, file, number = (*line.split("\t"), "", "", "", "")[:4]
    place = int(number) if number.isdecimal() and len(number) < 10 else None
    return Frame(function or None, module or None, file or None, place)


def says_nothing(frame: Frame) -> bool:
    """It is below everything that a program does, or below all calls of the kernel.

    What was made at run time does: without a name, too, it is not the runtime that calls it.
    """
    if not frame.function:
        return frame.module != JIT
    return frame.function in _ROOTS or enters_kernel(frame)


def is_beginning(function: str) -> bool:
    """Every program and thread has it, before any of its own."""
    return function in _ROOTS and function != "main"


def enters_kernel(frame: Frame) -> bool:
    """It is of the kernel's way in: of any system call, fault or interrupt."""
    return frame.module == KERNEL and _KERNEL_ENTRY.fullmatch(frame.function or "") is not None


def is_languages(frame: Frame) -> bool:
    """Of the C library, or of a language's runtime and standard library."""
    if _is_of_jdk(frame):
        return True
    if frame.file and frame.of_script:
        return _SOURCES.match(frame.file) is not None
    if _LIBRARY.match(frame.module or ""):
        return True
    name = frame.function or ""
    return any(each.match(name) for each in (_GO, _CPP_OR_RUST, _JAVA))


def is_of_c_or_std(named: str) -> bool:
    """Of what `Frame.named` says: a function of the library of C, C++ or Rust."""
    function, _, where = named.rpartition(" (")
    return _CPP_OR_RUST.match(function) is not None or _LIBRARY.match(where) is not None


def _is_of_jdk(frame: Frame) -> bool:
    """Its files have names without folders, as those of a program in Java: the package tells."""
    is_java = frame.module == JIT and "/" not in (frame.file or "")
    return is_java and _JAVA.match(frame.function or "") is not None


def is_own(frame: Frame) -> bool:
    """A function of the program, or of a library that it chose, with a name."""
    is_begin = is_beginning(frame.function or "") or frame.function in MODULES
    is_kernels = (frame.module or "").startswith("[") and frame.module != JIT
    is_others = is_kernels or is_languages(frame) or _is_interpreters(frame)
    return bool(frame.function) and not is_begin and not is_others


def _is_interpreters(frame: Frame) -> bool:
    return not frame.of_script and _INTERPRETERS.fullmatch(frame.module or "") is not None


def is_installed(frame: Frame) -> bool:
    """It is in a package of its language that was installed beside the program."""
    of_java = (frame.file or "").endswith(".java") and _OF_JAVA.match(frame.function or "")
    return bool(of_java) or _INSTALLED.search(frame.file or "") is not None


def own_functions(frames: Sequence[Frame]) -> List[int]:
    """Places of the program's own functions; where a runtime tells source files, of those."""
    has_source = any(frame.of_script for frame in frames)
    return [
        at
        for at, frame in enumerate(frames)
        if is_own(frame) and (frame.of_script or not has_source)
    ]


def turns_loop(frame: Frame) -> bool:
    """It is an event loop: who calls it waits for nothing that the loop waits for."""
    return _LOOPS.fullmatch(frame.function or "") is not None


def without_any_call(frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    """Without what only enters the kernel, for whatever call."""
    return tuple(each for each in frames if not _enters_any(each)) or frames


def _enters_any(frame: Frame) -> bool:
    if _ANY_CALL.fullmatch(frame.function or ""):
        return True
    return frame.function == "syscall" and _LIBRARY.match(frame.module or "") is not None


def as_called(frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    """The stack of a sleep without the kernel's part, and what a language calls in itself.

    Where it has none but functions of Go's runtime, the thread slept for its scheduler: what
    waits is no thread, and is not known.
    """
    found = [frame for frame in frames if frame.module != KERNEL]
    if not found:
        return frames
    if _are_of_scheduler(found):
        return (found[-1]._replace(function=None),)
    while len(found) > 1 and _calls_itself(*found[-2:]):
        found.pop()
    return tuple(found)


def as_parked(frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    """The stack of a goroutine that waits without what the runtime calls in itself for that."""
    found = list(frames)
    while len(found) > 1 and _PARKS.match(found[-1].function or "") and is_languages(found[-2]):
        found.pop()
    return tuple(found)


def is_of_a_runtime(frames: Sequence[Frame]) -> bool:
    """A whole stack of nothing but a runtime: a thread of its own, that no program called.

    A Java virtual machine has some that collect and compile, and one that waits for its end. Go's
    are none: any goroutine may have been what ran there.
    """
    found = [frame for frame in frames if frame.module != KERNEL]
    if not found or not all(is_languages(each) or _launches_java(each) for each in found):
        return False
    is_beginning_known = found[0].function in _ROOTS or _launches_java(found[0])
    return is_beginning_known and not _are_of_scheduler(found)


def _launches_java(frame: Frame) -> bool:
    """In the first thread of a Java virtual machine, which waits for its end.

    Its stack is larger than what is copied of it.
    """
    return _LAUNCHER.fullmatch(frame.module or "") is not None


def _are_of_scheduler(frames: Sequence[Frame]) -> bool:
    """Of Go's; who makes any call may be a goroutine, unless its callers are known to be none."""
    callers = [each.function or "" for each in frames if not _enters_any(each)]
    return bool(callers) and all(map(_GO_RUNTIME.match, callers))


def _calls_itself(caller: Frame, called: Frame) -> bool:
    return is_languages(caller) and is_languages(called) and caller.function not in _ROOTS
