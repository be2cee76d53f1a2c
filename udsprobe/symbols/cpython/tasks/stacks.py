"""The stacks of tasks of asyncio that wait for one another, for a lock or for time."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.python_frames import PythonFrame
from udsprobe.symbols.cpython.functions import PythonFunctions
from udsprobe.symbols.cpython.interpreter import Interpreter
from udsprobe.symbols.cpython.tasks.awaits import Awaits
from udsprobe.symbols.cpython.tasks.objects import Objects
from udsprobe.symbols.cpython.tasks.task_list import TaskList, Waiting
from udsprobe.symbols.process_names import CodeFrame, ParkedStack

# What a task waits for in these, the kernel sees: bytes of a connection. Function and file.
_FOR_BYTES = re.compile(
    r"(StreamReader\._wait_for_data|FlowControlMixin\._drain_helper) .*/asyncio/streams\.py"
    r"|BaseSelectorEventLoop\.sock_\w+ .*/asyncio/selector_events\.py"
    r"|BaseProactorEventLoop\.sock_\w+ .*/asyncio/proactor_events\.py"
    r"|(RequestResponseCycle\.receive|FlowControl\.drain) .*/uvicorn/protocols/http/\w+\.py"
    r"|(SocketStream|UNIXSocketStream)\.(receive|send)\w* .*/anyio/_backends/_asyncio\.py"
    r"|(StreamReader\._wait|DataQueue\.read|EmptyStreamReader\.\w+) .*/aiohttp/streams\.py"
    r"|BaseProtocol\._drain_helper .*/aiohttp/base_protocol\.py"
    r"|SanicProtocol\.(receive_more|send) .*/sanic/server/protocols/base_protocol\.py"
    r"|open_(unix_)?connection .*/asyncio/streams\.py"
    r"|WebSocketResponse\.receive .*/aiohttp/web_ws\.py"
    r"|ClientResponse\.start .*/aiohttp/client_reqrep\.py"
)
# Of these, and of none that a server uses for its clients: bytes that another program answers.
_FOR_ANSWERS = re.compile(
    r"StreamReader\._wait_for_data .*/asyncio/streams\.py"
    r"|BaseSelectorEventLoop\.sock_(recv|connect)\w* .*/asyncio/selector_events\.py"
    r"|(SocketStream|UNIXSocketStream)\.receive\w* .*/anyio/_backends/_asyncio\.py"
    r"|open_(unix_)?connection .*/asyncio/streams\.py"
    r"|ClientResponse\.start .*/aiohttp/client_reqrep\.py"
)
# A task that begins in these has a request to answer.
_HANDLES = re.compile(
    r"RequestResponseCycle\.run_asgi .*/uvicorn/protocols/http/\w+\.py"
    r"|_handle .*/hypercorn/asyncio/task_group\.py"
)
# It has one while it is below this: it serves a connection.
_HANDLES_BELOW = re.compile(
    r"RequestHandler\._handle_request .*/aiohttp/web_protocol\.py"
    r"|Http\.http1 .*/sanic/http/http1\.py"
    r"|BaseHTTPMiddleware\.__call__\.<locals>\.call_next\.<locals>\.coro "
    r".*/starlette/middleware/base\.py"
)
_GROUP = re.compile(r"TaskGroup\.__aexit__ .*/(asyncio/taskgroups|anyio/_backends/_asyncio)\.py")
# What it waits for, a task of its own does, which is told.
_PASSES_ON = re.compile(
    r"BaseHTTPMiddleware\.__call__\.<locals>\.call_next .*/starlette/middleware/base\.py"
)
# Functions there say what they wait for; where any other awaits a future, that is in C.
_ASYNCIO, _AWAITS_FUTURE = re.compile(r".*/asyncio/\w+\.py"), "Future.__await__"
_CELL, _CELL_CONTENT = "cell", 16
_HANDED_ON_MAX = 8
_Call = Tuple[int, int, int]


class _Group(NamedTuple):
    """Of tasks that wait alike; the innermost frame first."""

    calls: Tuple[_Call, ...]
    serves_connection: bool
    is_in_future: bool
    reads_client: bool


class TaskStacks:
    """Of one process that runs CPython.

    Args:
        functions: the names of its functions.
    """

    def __init__(
        self, interpreter: Interpreter, functions: PythonFunctions, memory: ProcessMemory
    ) -> None:
        self._functions, self._module = functions, interpreter.module
        layout = interpreter.layout
        self._tasks: Optional[TaskList] = None
        if layout.tasks is not None:
            self._objects = Objects(memory, layout.names, layout.tasks)
            self._tasks = TaskList(self._objects, layout.frames, layout.tasks)

    def waiting(self) -> List[ParkedStack]:
        """Those that wait at this moment, but for bytes of a connection, or for others of them.

        None of a process without asyncio, or whose memory cannot be read.
        """
        if self._tasks is None:
            return []
        self._objects.begin_round()
        with suppress(OSError):
            tasks, each = self._tasks.waiting()
            return self._told(tasks, each)
        return []

    def _told(self, tasks: Sequence[Waiting], each: int) -> List[ParkedStack]:
        groups = {task.address: self._group(task) for task in tasks}
        frames = {group: self._frames(group) for group in set(groups.values())}
        in_groups = {at for at, group in groups.items() if _is_in(frames[group][:2], _GROUP)}
        wait_for, waited_by = _among_themselves(tasks, in_groups)
        owing = {at for at, group in groups.items() if _has_request(group, frames[group])}
        for_bytes = {at for at, group in groups.items() if _is_in(frames[group], _FOR_BYTES)}
        owing = _with_handed_on(owing, waited_by, for_bytes)
        asking = {at for at in for_bytes & owing if _asks(groups[at], frames[groups[at]])}
        told = [
            (_lineage(at, groups, waited_by), at in owing, at in asking)
            for at, group in groups.items()
            if at not in wait_for and (at in asking or _is_of_program(frames[group]))
        ]
        return [
            ParkedStack(_joined(lineage, frames), True, is_owing, each * count, for_bytes=asks)
            for (lineage, is_owing, asks), count in Counter(told).items()
        ]

    def _group(self, task: Waiting) -> _Group:
        outwards = reversed(task.chain.frames)
        calls = tuple((one.code, one.name, one.qualified_name) for one in outwards)
        client = self._client(task.chain.frames[0])
        reads_client = bool(client) and task.chain.frames[-1].arguments[:1] == (client,)
        return _Group(calls, bool(client), task.chain.future is not None, reads_client)

    def _client(self, outermost: Awaits) -> int:
        """Of one that serves a connection the stream that it reads from, else 0.

        Its first arguments are both ends of it, as `asyncio.start_server` calls it.
        """
        with suppress(OSError):
            arguments = [self._content(at) for at in outermost.arguments]
            kinds = [self._objects.kind(at) if at else "" for at in arguments]
            for at in (0, 1):
                if kinds[at : at + 2] == ["StreamReader", "StreamWriter"]:
                    return arguments[at]
        return 0

    def _content(self, argument: int) -> int:
        """An argument, or what is in its cell, where functions inside use it as well."""
        if not argument or self._objects.kind(argument) != _CELL:
            return argument
        return self._objects.word(argument + _CELL_CONTENT)

    def _frames(self, group: _Group) -> List[CodeFrame]:
        found = [self._named(*call) for call in group.calls]
        if group.is_in_future and not _ASYNCIO.fullmatch(found[0].file or ""):
            return [CodeFrame(_AWAITS_FUTURE, self._module), *found]
        return found

    def _named(self, code: int, name: int, qualified_name: int) -> CodeFrame:
        found = self._functions.of(PythonFrame(code, name, False))
        if found is None:
            return CodeFrame(None, self._module)
        called = found.name
        if qualified_name:
            with suppress(OSError):
                called = self._functions.text(qualified_name) or called
        return CodeFrame(called, self._module, found.file, found.line)


def _lineage(
    at: int, groups: Mapping[int, _Group], waited_by: Mapping[int, Set[int]]
) -> Tuple[_Group, ...]:
    """Of a task, of the one that waits for it, and so on, as if that had called it."""
    found, seen = [groups[at]], {at}
    while len(found) < _HANDED_ON_MAX:
        outer = waited_by.get(at, set())
        if len(outer) != 1 or outer & seen:
            break
        (at,) = outer
        seen.add(at)
        found.append(groups[at])
    return tuple(found)


def _joined(
    lineage: Sequence[_Group], frames: Mapping[_Group, Sequence[CodeFrame]]
) -> List[CodeFrame]:
    """Another task is what the outer ones wait for, and no future of C."""
    first, *others = (frames[each] for each in lineage)
    outer = (frame for each in others for frame in each if frame.function != _AWAITS_FUTURE)
    return [*first, *outer]


def _among_themselves(
    tasks: Sequence[Waiting], in_groups: Set[int]
) -> Tuple[Set[int], Dict[int, Set[int]]]:
    """Tasks that wait for others of these to be done, and for each of those who that are.

    Args:
        in_groups: tasks whose innermost frame is a method of a group of tasks, for which it waits.
    """
    by_address = {task.address for task in tasks}
    waits: Dict[int, Set[int]] = {}
    for task in tasks:
        waits.setdefault(task.future, set()).add(task.address)
        group = task.chain.frames[-1].arguments[:1] if task.address in in_groups else ()
        for argument in group:
            waits.setdefault(argument, set()).add(task.address)
    waited_by: Dict[int, Set[int]] = {}
    for task in tasks:
        for told in filter(None, task.done):
            found = waits.get(told, set()) | ({told} & by_address)
            waited_by.setdefault(task.address, set()).update(found - {task.address})
    return {outer for those in waited_by.values() for outer in those}, waited_by


def _with_handed_on(
    owing: Set[int], waited_by: Dict[int, Set[int]], for_bytes: Set[int]
) -> Set[int]:
    """And those that one with a request waits for.

    One that also waits for bytes, by another task, may be a client's that has nothing to ask.
    """
    found = set(owing)
    listens = {outer for at in for_bytes for outer in waited_by.get(at, ())}
    for _ in range(_HANDED_ON_MAX):
        hands_on = found - listens
        more = {at for at, outer in waited_by.items() if at not in found and outer & hands_on}
        if not more:
            break
        found |= more
    return found


def _has_request(group: _Group, frames: Sequence[CodeFrame]) -> bool:
    if group.serves_connection or _is_in(frames[-1:], _HANDLES):
        return True
    return _is_in(frames, _HANDLES_BELOW)


def _asks(group: _Group, frames: Sequence[CodeFrame]) -> bool:
    """It waits for an answer, and not for its client."""
    return _is_in(frames, _FOR_ANSWERS) and not group.reads_client


def _is_of_program(frames: Sequence[CodeFrame]) -> bool:
    return not _is_in(frames, _FOR_BYTES) and not _is_in(frames, _PASSES_ON)


def _is_in(frames: Sequence[CodeFrame], functions: re.Pattern[str]) -> bool:
    return any(functions.fullmatch(f"{each.function} {each.file}") for each in frames)
