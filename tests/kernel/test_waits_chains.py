"""Chains of waits inside language runtimes and across proxies: the author, or nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set

import pytest

from tests.conftest import Require
from tests.kernel.busy import until
from tests.kernel.servers import NGINX_CONFIGURATION, Server, free_port
from tests.kernel.test_waits import assert_sums
from tests.kernel.test_waits_runtimes import watched
from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root, pytest.mark.alone]

Row = Dict[str, Any]
MANY = 8

EXECUTOR = """
import json, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
print("ready", flush=True)
sys.stdin.readline()
def work():
    time.sleep(0.2)
    return threading.get_native_id()
with ThreadPoolExecutor(1) as pool:
    first, second = pool.submit(work), pool.submit(work)
    worker = second.result()
print(json.dumps({"waiter": threading.get_native_id(), "worker": worker}), flush=True)
sys.stdin.readline()
"""

JAVA_LOCK = """
import java.util.concurrent.CountDownLatch;
public class Lock {
    public static void main(String[] unused) throws Exception {
        Object lock = new Object();
        CountDownLatch held = new CountDownLatch(1), done = new CountDownLatch(2);
        CountDownLatch over = new CountDownLatch(1);
        System.out.println("ready");
        System.in.read();
        Thread holder = new Thread(() -> {
            synchronized (lock) {
                held.countDown();
                try { Thread.sleep(300); } catch (InterruptedException e) { }
            }
            done.countDown();
            try { over.await(); } catch (InterruptedException e) { }
        }, "holder");
        Thread waiter = new Thread(() -> {
            try { held.await(); } catch (InterruptedException e) { }
            synchronized (lock) { }
            done.countDown();
            try { over.await(); } catch (InterruptedException e) { }
        }, "waiter");
        holder.start(); waiter.start();
        done.await();
        System.out.println("{}");
        while (System.in.read() >= 0) ;
        over.countDown();
    }
}
"""

JAVA_PAUSE = """
import java.util.concurrent.CountDownLatch;
public class Pause {
    static Object[][] heap = new Object[200][];
    static volatile boolean over;
    public static void main(String[] unused) throws Exception {
        System.out.println("ready");
        System.in.read();
        for (int i = 0; i < heap.length; i++) {
            heap[i] = new Object[4000];
            for (int j = 0; j < heap[i].length; j++) heap[i][j] = new int[4];
        }
        CountDownLatch end = new CountDownLatch(1);
        Thread mutator = new Thread(() -> {
            long n = 0;
            while (!over) n++;
            heap[0][0] = n;
            try { end.await(); } catch (InterruptedException e) { }
        }, "mutator");
        mutator.start();
        for (int i = 0; i < 5; i++) System.gc();
        over = true;
        System.out.println("{}");
        while (System.in.read() >= 0) ;
        end.countDown();
    }
}
"""

GO = """
package main

import ("bufio"; "fmt"; "os"; "runtime"; "sync"; "time")

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	input.ReadString('\\n')
	var lock sync.Mutex
	var both sync.WaitGroup
	held := make(chan bool)
	both.Add(2)
	go func() {
		runtime.LockOSThread()
		lock.Lock()
		close(held)
		time.Sleep(200 * time.Millisecond)
		lock.Unlock()
		both.Done()
	}()
	go func() {
		runtime.LockOSThread()
		<-held
		lock.Lock()
		lock.Unlock()
		both.Done()
	}()
	both.Wait()
	fmt.Println("{}")
	input.ReadString(0)
}
"""

APP = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(16)
while True:
    connection, _ = listener.accept()
    while True:
        asked = b""
        while b"\\r\\n\\r\\n" not in asked:
            more = connection.recv(65536)
            if not more: break
            asked += more
        if not asked: break
        until = time.thread_time() + 0.05
        while time.thread_time() < until: pass
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    connection.close()
"""


def longest(rows: Sequence[Row], comm: str) -> Row:
    """Of a thread of that name, the longest waits for locks."""
    found = [row for row in rows if row["comm"] == comm and row["kind"] == "lock"]
    return max(found, key=lambda row: float(row["total_us"]))


def threads(row: Row) -> Set[Any]:
    return {part["comm"] for part in row["authors"] if part["by"] == "thread"}


def test_a_full_pool_of_threads_of_python(tmp_path: Path) -> None:
    """Its one thread is asleep in the first piece of work, then in the second."""
    _, tids, rows = watched([sys.executable, "-c", EXECUTOR], tmp_path)
    (row,) = (r for r in rows if (r["tid"], r["kind"]) == (tids["waiter"], "lock"))
    by = {part["tid"] for part in row["authors"] if part["by"] == "thread"}
    assert by == {tids["worker"]}
    asleep = [part["total_us"] for part in row["authors"] if part["was"] == "sleep"]
    assert sum(asleep) > 0.5 * row["total_us"]


def java(require: Require, name: str, source: str, folder: Path, *options: str) -> List[Row]:
    """The waits of a Java program."""
    (folder / f"{name}.java").write_text(source)
    program = require("java")["java"]
    _, _, rows = watched([program, *options, str(folder / f"{name}.java")], folder)
    return rows


def test_a_monitor_of_java(require: Require, tmp_path: Path) -> None:
    rows = java(require, "Lock", JAVA_LOCK, tmp_path)
    row = longest(rows, "waiter")
    assert max(row["authors"], key=lambda part: float(part["total_us"]))["comm"] == "holder"
    # A new thread waits for who starts it, too.
    assert threads(row) <= {"holder", "java", "VM Thread"}


def test_a_pause_of_java(require: Require, tmp_path: Path) -> None:
    """The thread that stopped the others lets them go on.

    Shorter waits of it are for other threads of the machine: the compiler's, for one.
    """
    rows = java(require, "Pause", JAVA_PAUSE, tmp_path, "-XX:+UseSerialGC")
    row = longest(rows, "mutator")
    named = [part for part in row["authors"] if part["by"] == "thread"]
    assert {part["pid"] for part in named} == {row["pid"]}
    paused_us = sum(part["total_us"] for part in named if part["comm"] == "VM Thread")
    assert paused_us > 0.5 * row["total_us"]


def test_a_mutex_of_go_names_nobody_else(require: Require, tmp_path: Path) -> None:
    """Go parks in user space: threads of its own wake each other, no others are named."""
    go = require("go")["go"]
    (tmp_path / "main.go").write_text(GO)
    built = str(tmp_path / "mutex")
    build(go, tmp_path, built)
    pid, _, rows = watched([built], tmp_path)
    locks = [row for row in rows if row["kind"] == "lock"]
    by = {part["pid"] for row in locks for part in row["authors"] if part["by"] == "thread"}
    assert by == {pid}


def build(go: str, folder: Path, built: str) -> None:
    environment = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    argv = [go, "build", "-o", built, "main.go"]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, env=environment)


def proxy(program: str, folder: Path, upstream: str, port: int) -> Server:
    """One worker of nginx before `upstream`; on a Unix socket as well, `folder`/sock."""
    folder.mkdir()
    text = NGINX_CONFIGURATION.format(folder=folder, upstream=upstream, keepalive=8, port=port)
    text = text.replace("worker_processes 2", "worker_processes 1")
    text = text.replace("listen 127", f"listen unix:{folder}/sock;\n        listen 127")
    (folder / "nginx.conf").write_text(text)
    argv = [program, "-p", str(folder), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/start.log"]
    return Server(argv, ("127.0.0.1", port), folder / "nginx.log")


def test_two_proxies_wait_for_the_application(require: Require, tmp_path: Path) -> None:
    nginx = require("nginx")["nginx"]
    (tmp_path / "app.py").write_text(APP)
    path = f"{tmp_path}/app.sock"
    port = free_port()
    app = Server([sys.executable, str(tmp_path / "app.py"), path], path, tmp_path / "app.log")
    first = proxy(nginx, tmp_path / "outer", f"{tmp_path}/inner/sock", port)
    second = proxy(nginx, tmp_path / "inner", path, free_port())
    with app, second as inner, first as outer:
        app_pid, pids = app.pid, f"{outer.pid},{inner.pid},{app.pid}"
        outer_worker, inner_worker = worker_of(outer.pid), worker_of(inner.pid)
        with Attached(["--pid", pids], tmp_path) as observation:
            ask(port)
    assert_sums(observation.report)
    rows = observation.report["waits"]
    (row,) = (r for r in rows if (r["tid"], r["kind"]) == (outer_worker, "poll"))
    roots = [part for part in row["roots"] if part["pid"] == app_pid]
    computed_us = sum(part["total_us"] for part in roots if part["was"] in ("cpu", "runq"))
    assert computed_us > 0.85 * MANY * 50_000
    assert {part["via"][0].rpartition("/")[2] for part in roots} == {str(inner_worker)}


def worker_of(master: int) -> int:
    """Its socket is there before its worker is."""
    children = Path(f"/proc/{master}/task/{master}/children")
    until(lambda: bool(children.read_text()), f"nginx {master} has a worker")
    (pid,) = children.read_text().split()
    return int(pid)


def ask(port: int) -> None:
    for _ in range(MANY):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            while client.recv(65536):
                pass
