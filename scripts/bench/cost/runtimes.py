"""A real server of each runtime, and the client that keeps it busy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Mapping, Sequence

from scripts.bench.cost.processes import PATIENCE_S

NODE = """
const http = require('http'), zlib = require('zlib'), crypto = require('crypto');
const rows = [...Array(300).keys()].map((n) => ({ n, name: 'row ' + (n * 7919) % 300 }));
const sorted = () => [...rows].sort((a, b) => (a.name < b.name ? -1 : 1));
const digest = (text) => crypto.createHash('sha256').update(text).digest('hex');
http.createServer(async (request, response) => {
  const text = JSON.stringify(sorted());
  await new Promise((resolve) => setTimeout(resolve, 5));
  response.end(digest(text) + zlib.gzipSync(text).length);
}).listen(process.argv[2]);
"""
PYTHON = """
import hashlib, json, sys, time, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROWS = [{"n": n, "name": f"row {n * 7919 % 300}"} for n in range(300)]

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        text = json.dumps(sorted(ROWS, key=lambda row: row["name"])).encode()
        time.sleep(0.005)
        body = hashlib.sha256(zlib.compress(text)).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
PHP = """<?php
function row($n) { return ['n' => $n, 'name' => 'row ' . ($n * 7919 % 300)]; }
function before($a, $b) { return strcmp($a['name'], $b['name']); }
function sorted() { $all = array_map('row', range(0, 299)); usort($all, 'before'); return $all; }
function digest($text) { return hash('sha256', gzcompress($text)); }
function page() { $text = json_encode(sorted()); usleep(2000); return digest($text); }
echo page();
"""
RUBY = """
require 'socket'
require 'json'
require 'zlib'
require 'digest'
ROWS = (0...300).map { |n| { n: n, name: "row #{n * 7919 % 300}" } }
def sorted = ROWS.sort_by { |row| row[:name] }
def page
  text = JSON.generate(sorted)
  sleep 0.005
  Digest::SHA256.hexdigest(Zlib.deflate(text))
end
def serve(client)
  while (line = client.gets)
    next unless line == "\\r\\n"
    body = page
    client.write("HTTP/1.1 200 OK\\r\\nContent-Length: #{body.bytesize}\\r\\n\\r\\n#{body}")
  end
end
server = TCPServer.new('127.0.0.1', ARGV[0].to_i)
loop { Thread.new(server.accept) { |client| serve(client) } }
"""
JAVA = """
import com.sun.net.httpserver.*;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.Executors;
import java.util.stream.*;
import java.util.zip.CRC32;

public class Served {
    static final List<String> ROWS =
        IntStream.range(0, 300).mapToObj(n -> "row " + n * 7919 % 300).collect(Collectors.toList());
    static String sorted() { return ROWS.stream().sorted().collect(Collectors.joining(",")); }
    static String page() throws Exception {
        byte[] text = sorted().getBytes();
        CRC32 sum = new CRC32();
        sum.update(text);
        Thread.sleep(5);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(text);
        return String.format("%x %s", sum.getValue(), Arrays.toString(digest));
    }
    static void answer(HttpExchange exchange) {
        try {
            byte[] body = page().getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 128);
        server.createContext("/", Served::answer);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }
}
"""
GO = """
package main

import (
    "compress/gzip"
    "crypto/sha256"
    "encoding/json"
    "fmt"
    "io"
    "net/http"
    "os"
    "sort"
    "time"
)

type row struct {
    N    int
    Name string
}

func sorted() []row {
    rows := make([]row, 300)
    for n := range rows {
        rows[n] = row{n, fmt.Sprintf("row %d", n*7919%300)}
    }
    sort.Slice(rows, func(a, b int) bool { return rows[a].Name < rows[b].Name })
    return rows
}

func answer(to http.ResponseWriter, _ *http.Request) {
    text, _ := json.Marshal(sorted())
    time.Sleep(5 * time.Millisecond)
    packed := gzip.NewWriter(io.Discard)
    packed.Write(text)
    packed.Close()
    fmt.Fprintf(to, "%x", sha256.Sum256(text))
}

func main() {
    http.HandleFunc("/", answer)
    http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
"""
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
 fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
 gzip on; gzip_types *; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""
Process = subprocess.Popen


def started(port: int, *argv: str, **more: object) -> Process[bytes]:
    """A server, once it listens.

    Raises:
        RuntimeError: it ends before that, or does not within `PATIENCE_S`.
        FileNotFoundError: it is not installed.
    """
    process: Process[bytes] = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more
    )  # type: ignore[call-overload]
    give_up_at = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < give_up_at:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    raise RuntimeError(f"{argv[0]} does not listen: exit status {process.wait()}")


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def _node(port: int, folder: Path) -> Process[bytes]:
    return started(port, "node", _file(folder, "served.js", NODE), str(port))


def _python(port: int, folder: Path) -> Process[bytes]:
    return started(port, "python3", _file(folder, "served.py", PYTHON), str(port))


def _php(port: int, folder: Path) -> Process[bytes]:
    return started(port, "php", "-S", f"127.0.0.1:{port}", _file(folder, "served.php", PHP))


def _ruby(port: int, folder: Path) -> Process[bytes]:
    return started(port, "ruby", _file(folder, "served.rb", RUBY), str(port))


def _java(port: int, folder: Path) -> Process[bytes]:
    source = _file(folder, "Served.java", JAVA)
    subprocess.run(["javac", "-d", str(folder), source], check=True)
    return started(port, "java", "-cp", str(folder), "Served", str(port))


def _go(port: int, folder: Path) -> Process[bytes]:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    program = str(folder / "served")
    source = _file(folder, "served.go", GO)
    subprocess.run([go, "build", "-o", program, source], check=True)
    return started(port, program, str(port))


def _nginx(port: int, folder: Path) -> Process[bytes]:
    _file(folder, "index.html", "some text that is sent\n" * 2000)
    folder.chmod(0o755)
    text = NGINX.format(folder=folder, port=port)
    return started(port, "nginx", "-c", _file(folder, "nginx.conf", text))


def _redis(port: int, folder: Path) -> Process[bytes]:
    return started(port, "redis-server", "--port", str(port), "--save", "", "--dir", str(folder))


def _postgres(port: int, folder: Path) -> Process[bytes]:
    """As `nobody`: it refuses to run as root."""
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir()
    shutil.chown(data, "nobody")
    own = {"user": "nobody", "env": {**os.environ, "HOME": str(data)}}
    words = ["initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "-N"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **own)  # type: ignore[call-overload]
    options = ["-c", "fsync=off", "-c", f"unix_socket_directories={data}"]
    return started(port, "postgres", "-D", str(data), "-p", str(port), *options, **own)


def _wrk(port: int, seconds: float) -> List[str]:
    return ["wrk", "-t1", "-c32", f"-d{seconds:.0f}s", f"http://127.0.0.1:{port}/"]


def _redis_benchmark(port: int, seconds: float) -> List[str]:
    call = "redis-benchmark -q -l -c 32 -r 100000 -t set,get,lrange_100,zadd"
    return ["timeout", f"{seconds:.0f}", *call.split(), "-p", str(port)]


def _pgbench(port: int, seconds: float) -> List[str]:
    to = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
    subprocess.run(["pgbench", *to, "-i", "-q", "postgres"], check=True, capture_output=True)
    return ["pgbench", *to, "-S", "-c", "16", "-T", f"{seconds:.0f}", "postgres"]


@dataclass(frozen=True)
class Runtime:
    """One server.

    Attributes:
        server: starts it, by port and a folder of its own; it is ready then.
        client: the words of the client's command, by port and seconds.
    """

    server: Callable[[int, Path], Process[bytes]]
    client: Callable[[int, float], Sequence[str]] = _wrk

    def load(self, port: int, seconds: float) -> Process[bytes]:
        """The client; it ends by itself after so long."""
        words = self.client(port, seconds)
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


RUNTIMES: Mapping[str, Runtime] = {
    "nginx": Runtime(_nginx),
    "redis": Runtime(_redis, _redis_benchmark),
    "postgresql": Runtime(_postgres, _pgbench),
    "go": Runtime(_go),
    "node": Runtime(_node),
    "python": Runtime(_python),
    "php": Runtime(_php),
    "ruby": Runtime(_ruby),
    "java": Runtime(_java),
}
