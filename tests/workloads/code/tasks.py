"""A server of asyncio's streams whose tasks wait, each as its request asked.

Once all wait it says so, as JSON: each task's frames by its own chain of awaits, the innermost
first, how often, and whether it has a request to answer. Then it stands still.

Argument: `uvloop` where the loop is to be that. A request is a line, the name of a method of Store.
"""

import asyncio
import collections
import contextvars
import gc
import json
import os
import socket
import sys
import time

ASKED = {
    "put": 20,
    "limited": 7,
    "naps": 5,
    "takes": 4,
    "gives": 3,
    "told": 2,
    "executor": 3,
    "pooled": 6,
    "upstream": 4,
    "streamed": 2,
    "by_hand": 2,
    "timed": 3,
    "gathered": 2,
    "apart": 2,
    "chats": 3,
    "idle": 5,
}
FOR_EVER, BACKGROUND = 100000, 10
SERVING = contextvars.ContextVar("SERVING")


class ByHand:
    def __await__(self):
        return (yield from asyncio.sleep(FOR_EVER).__await__())


class Pool:
    """Of connections: who finds none waits for a future of it."""

    def __init__(self):
        self.free = collections.deque([1, 2])
        self.waiters = []

    async def take(self):
        if not self.free:
            future = asyncio.get_running_loop().create_future()
            self.waiters.append(future)
            await future
        return self.free.popleft()


class Store:
    def __init__(self, port):
        self.port, self.kept = port, []
        self.lock, self.limit = asyncio.Lock(), asyncio.Semaphore(2)
        self.empty, self.full = asyncio.Queue(), asyncio.Queue(1)
        self.event, self.pool = asyncio.Event(), Pool()
        self.full.put_nowait(1)

    async def put(self):
        async with self.lock:
            await self.naps()

    async def limited(self):
        async with self.limit:
            await self.naps()

    async def naps(self):
        await asyncio.sleep(FOR_EVER)

    async def takes(self):
        await self.empty.get()

    async def gives(self):
        await self.full.put(2)

    async def told(self):
        await self.event.wait()

    async def executor(self):
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)

    async def pooled(self):
        await self.pool.take()
        await self.naps()

    async def upstream(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.kept.append(writer)
        writer.write(b"silent\n")
        await reader.readexactly(1)

    async def numbers(self):
        await self.naps()
        yield 1

    async def streamed(self):
        async for _ in self.numbers():
            pass

    async def by_hand(self):
        await ByHand()

    async def timed(self):
        await asyncio.wait_for(self.takes(), FOR_EVER)

    async def gathered(self):
        await asyncio.gather(self.takes(), self.naps())

    async def apart(self):
        await asyncio.create_task(self.told())


async def background():
    while True:
        await asyncio.sleep(FOR_EVER)


async def main():
    requests = [name for name, count in ASKED.items() for _ in range(count)]
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kept = [[], Store(port), [asyncio.create_task(background()) for _ in range(BACKGROUND)]]
    serve.store = kept[1]
    for name in requests:
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"" if name == "idle" else name.encode() + b"\n")
        kept[0].append(client)
    # Each asks one more connection, or has tasks of its own; those with a time limit until 3.11.
    more = (
        ASKED["upstream"]
        + 2 * ASKED["chats"]
        + 2 * ASKED["gathered"]
        + ASKED["apart"]
        + 1
        + BACKGROUND
    )
    more += ASKED["timed"] if sys.version_info < (3, 12) else 0
    loop = asyncio.get_running_loop()
    loop.call_soon(tell_once_all_wait, loop, len(requests) + more)
    await loop.create_future()


async def serve(reader, writer):
    SERVING.set(asyncio.current_task())
    name = (await reader.readline()).decode().strip()
    if name == "silent":
        await reader.read()
    if name == "chats":
        await chats(reader)
    await getattr(serve.store, name)()


async def chats(reader):
    """It is told what others say, until its client says something: nothing is asked."""
    await asyncio.wait([asyncio.create_task(each) for each in (hears(), reader.read())])


async def hears():
    await asyncio.Queue().get()


def tell_once_all_wait(loop, count):
    tasks = [task for task in asyncio.all_tasks(loop) if task._fut_waiter is not None]
    # asyncio accepts and connects with tasks of its own.
    connects = any({"open_connection", ACCEPTS} & {name for name, _, _ in chain(t)} for t in tasks)
    if connects or len(tasks) != count:
        loop.call_later(0.01, tell_once_all_wait, loop, count)
        return
    found = collections.Counter(
        json.dumps([stack + outer_chain(task), has_request(task)])
        for task in tasks
        for stack in [chain(task)]
        if not is_passed_over(stack)
    )
    told = [[*json.loads(text), count] for text, count in found.items()]
    print(json.dumps({"pid": os.getpid(), "stacks": told}), flush=True)


def has_request(task):
    name = task.get_coro().__qualname__
    return name == "serve" or name.startswith("Store.")


def outer_chain(task):
    """Of the task that waits for this one: in its context it asked to be told when this is done."""
    waits = [context.get(SERVING) for _, context in task._callbacks or ()]
    return [frame for one in waits if one is not None and one is not task for frame in chain(one)]


def is_passed_over(stack):
    """It waits for bytes, or for others of these tasks."""
    names = [name.rpartition(".")[2] for name, _, _ in stack]
    if "_wait_for_data" in names or {"gathered", "apart", "chats"} & set(names):
        return True
    return sys.version_info < (3, 12) and "timed" in names


def chain(task):
    """The frames of a task that waits for a future, the innermost first."""
    at, found = task.get_coro(), []
    while type(at).__name__ != "FutureIter":
        prefix = next((p for p in ("cr", "gi", "ag") if hasattr(at, p + "_code")), None)
        if prefix is None:
            # What drives a coroutine or an asynchronous generator refers to it alone; of a
            # coroutine in C it is not known what it does.
            at = next((one for one in gc.get_referents(at) if type(one).__name__ in DRIVEN), None)
            if at is None:
                break
            continue
        code = getattr(at, prefix + "_code")
        name = getattr(code, "co_qualname", at.__qualname__)
        found.append([name, code.co_filename, code.co_firstlineno])
        at = getattr(at, {"cr": "cr_await", "gi": "gi_yieldfrom", "ag": "ag_await"}[prefix])
    return found[::-1]


ACCEPTS = "BaseSelectorEventLoop._accept_connection2"
DRIVEN = ("coroutine", "async_generator")
if "uvloop" in sys.argv:
    import uvloop

    uvloop.install()
asyncio.run(main())
