"""Which function asks the upstream that requests wait for: servers in seven ways, a slow upstream.

Each says its port when it listens. What it asks with is `stock`, and what calls that is `order`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import Require
from tests.kernel.clients import asked, by_http
from tests.kernel.test_code import attach

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CLIENTS, ANSWER_S = 4, 0.02
THREADS = """
import http.client, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def stock():
    asked = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))
    asked.request('GET', '/')
    return asked.getresponse().read()

def order():
    return stock()

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = order()
        self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n' + body)
    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
LOOP = """
import asyncio, sys

async def stock():
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    writer.write(b'GET / HTTP/1.1\\r\\nHost: s\\r\\nConnection: close\\r\\n\\r\\n')
    answer = await reader.read()
    writer.close()
    return answer

async def order():
    return await stock()

async def serve(reader, writer):
    while await reader.readuntil(b'\\r\\n\\r\\n'):
        await order()
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')

async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
NODE = """
const http = require('http');
const asked = { host: '127.0.0.1', port: process.argv[2] };
async function stock() {
  const answer = await new Promise((done) => http.get(asked, done));
  answer.resume();
}
async function order() {
  await stock();
}
const server = http.createServer(async (request, response) => {
  await order();
  response.end('ok');
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"""
GO = """
package main

import ("fmt"; "io"; "net"; "net/http"; "os")

//go:noinline
func stock() []byte {
	answer, _ := http.Get("http://127.0.0.1:" + os.Args[1])
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	return body
}

//go:noinline
func order() []byte { return stock() }

func main() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	http.Serve(listener, http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		to.Write(order())
	}))
}
"""
RUBY = """
require 'socket'
def stock
  asked = TCPSocket.new('127.0.0.1', ARGV[0].to_i)
  asked.write("GET / HTTP/1.1\\r\\nHost: s\\r\\nConnection: close\\r\\n\\r\\n")
  answer = asked.read
  asked.close
  answer
end
def order
  stock
end
server = TCPServer.new('127.0.0.1', 0)
$stdout.puts server.addr[1]
$stdout.flush
loop do
  Thread.new(server.accept) do |client|
    until client.gets("\\r\\n\\r\\n").nil?
      order
      client.write("HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    end
  end
end
"""
PHP = """<?php
function stock($port) {
    return file_get_contents("http://127.0.0.1:$port/");
}
function order($port) {
    return stock($port);
}
$server = stream_socket_server('tcp://127.0.0.1:0');
echo explode(':', stream_socket_get_name($server, false))[1], "\\n";
for ($at = 0; $at < 3; $at++) {
    if (!pcntl_fork()) break;
}
while ($client = stream_socket_accept($server, -1)) {
    while (($line = fgets($client)) !== false) {
        if ($line !== "\\r\\n") continue;
        order($argv[1]);
        fwrite($client, "HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok");
    }
}
"""
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.util.concurrent.Executors;

public class Asks {
    static byte[] stock(String port) throws Exception {
        return new URL("http://127.0.0.1:" + port + "/").openStream().readAllBytes();
    }
    static byte[] order(String port) throws Exception {
        return stock(port);
    }
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 16);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            try {
                byte[] body = order(words[0]);
                exchange.sendResponseHeaders(200, body.length);
                exchange.getResponseBody().write(body);
                exchange.close();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        server.start();
        System.out.println(server.getAddress().getPort());
    }
}
"""
# The program's own function in which most of the time is waited, as a verdict has it.
OWN = {
    "threads": "stock (threads.py:4)",
    "loop": "stock (loop.py:3)",
    "node": "stock (node.js:3)",
    "go": "main.stock (main.go:6)",
    "ruby": "Object#stock (ruby.rb:2)",
    "php": "stock (php.php:2)",
    "java": "Asks.stock (Asks.java:7)",
}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(ANSWER_S)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def log_message(self, *_words: object) -> None:
        pass


@contextmanager
def upstream() -> Iterator[int]:
    """Its port; it answers late."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def made(way: str, folder: Path, require: Require) -> List[str]:
    """What starts a server, but for the port that it asks."""
    texts: Dict[str, str] = {
        "threads.py": THREADS,
        "loop.py": LOOP,
        "node.js": NODE,
        "main.go": GO,
        "ruby.rb": RUBY,
        "php.php": PHP,
        "Asks.java": JAVA,
    }
    stems = {"go": "main", "java": "Asks"}
    name = next(each for each in texts if each.partition(".")[0] == stems.get(way, way))
    file = folder / name
    file.write_text(texts[name].lstrip("\n"))
    if way in ("threads", "loop"):
        return [sys.executable, str(file)]
    if way == "go":
        build = [require("go")["go"], "build", "-o", str(folder / "asks"), str(file)]
        subprocess.run(build, check=True, env={**os.environ, "CGO_ENABLED": "0"})
        return [str(folder / "asks")]
    if way == "java":
        tools = require("java", "javac")
        subprocess.run([tools["javac"], "-d", str(folder), str(file)], check=True)
        # Else its answers wait for Nagle's algorithm.
        return [tools["java"], "-Dsun.net.httpserver.nodelay=true", "-cp", str(folder), "Asks"]
    return [require(way)[way], str(file)]


def observed(argv: List[str], port: int, folder: Path) -> Dict[str, Any]:
    """The verdict about that server, which asks that port and has clients."""
    command = [*argv, str(port)]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, process_group=0)
    try:
        assert process.stdout is not None
        served = int(process.stdout.readline())
        with asked(by_http(f"127.0.0.1:{served}"), CLIENTS):
            verdict: Dict[str, Any] = attach(process.pid, folder, seconds=8)["verdict"]
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    return verdict


@pytest.mark.parametrize("way", OWN)
def test_the_function_that_asks_is_named(way: str, require: Require, tmp_path: Path) -> None:
    argv = made(way, tmp_path, require)
    with upstream() as port:
        verdict = observed(argv, port, tmp_path)
    assert (verdict["cause"], verdict["subject"]) == ("upstream-wait", f"tcp:127.0.0.1:{port}")
    assert verdict["code"][0]["own"] == OWN[way]
    assert f" in {OWN[way]}. It is not the transport" in verdict["summary"]


def test_who_asks_again_and_again_is_told_how_often(require: Require, tmp_path: Path) -> None:
    """Twelve times for each request, one after the other."""
    argv = made("threads", tmp_path, require)
    program = Path(argv[-1])
    loop = "return [stock() for _ in range(12)][0]"
    program.write_text(program.read_text().replace("return stock()", loop))
    with upstream() as port:
        verdict = observed(argv, port, tmp_path)
    assert verdict["cause"] == "upstream-wait"
    assert ", which it asks 12 times for each request, " in verdict["summary"]
    assert verdict["code"][0]["own"] == OWN["threads"]
    assert "once for all that a request needs" in verdict["actions"][0]["say"]
