"""Receivers of OTLP metrics: of the official protobuf and gRPC packages, and a real collector."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List, Optional

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

from tests.patience import PATIENCE_S

SOURCE = Path(__file__).resolve().parents[1] / "workloads" / "collector"
GO_BUILD_S = 900
CONFIGURATION = """
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  file: {{path: "{output}", flush_interval: 100ms}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [file]}}
"""


class Received:
    """What came, as the protocol's JSON: newest last."""

    def __init__(self) -> None:
        self.documents: List[Dict[str, Any]] = []
        self.paths: List[str] = []

    def add(self, request: Any) -> None:
        self.documents.append(MessageToDict(request))


class GrpcReceiver(Received, service.MetricsServiceServicer):
    """The official service, on loopback."""

    def __enter__(self) -> GrpcReceiver:
        self._server = grpc.server(ThreadPoolExecutor(2))
        service.add_MetricsServiceServicer_to_server(self, self._server)
        self.url = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def Export(self, request: Any, context: Any) -> Any:
        self.add(request)
        return messages.ExportMetricsServiceResponse()

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()


class HttpReceiver(Received):
    """Protobuf over HTTP."""

    def __enter__(self) -> HttpReceiver:
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.paths.append(self.path)
                received.add(messages.ExportMetricsServiceRequest.FromString(body))
                answer = messages.ExportMetricsServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def go_that_builds_it() -> Optional[str]:
    """A Go of 1.25 or later; Debian 12 has none."""
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        return None
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True).stdout
    version = said.strip()[len("go") :].split(".")[:2]
    return go if [int(each) for each in version if each.isdigit()] >= [1, 25] else None


class Collector:
    """A collector of OpenTelemetry's own parts, built once into `cache`.

    Attributes:
        grpc_url, http_url: where it receives.
    """

    def __init__(self, go: str, cache: Path, folder: Path) -> None:
        self._program = cache / "collector"
        if not self._program.exists():
            _build(go, self._program)
        self._output = folder / "metrics.jsonl"
        ports = _free_ports(2)
        self.grpc_url, self.http_url = (
            f"grpc://127.0.0.1:{ports[0]}",
            f"http://127.0.0.1:{ports[1]}",
        )
        self._ports = ports
        self._config = folder / "collector.yml"
        self._config.write_text(
            CONFIGURATION.format(grpc=ports[0], http=ports[1], output=self._output)
        )

    def __enter__(self) -> Collector:
        self._process = subprocess.Popen(
            [str(self._program), f"--config=file:{self._config}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up_at = time.monotonic() + PATIENCE_S
        while not all(map(_answers, self._ports)):
            assert self._process.poll() is None and time.monotonic() < give_up_at
            time.sleep(0.05)
        return self

    def documents(self) -> List[Dict[str, Any]]:
        """End it; all it received."""
        self.__exit__()
        return [json.loads(line) for line in self._output.read_text().splitlines()]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


def _build(go: str, program: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    subprocess.run(
        ["nice", "-n", "10", go, "build", "-o", str(program), "."],
        cwd=SOURCE,
        env=environment,
        check=True,
        timeout=GO_BUILD_S,
    )


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(number: int) -> List[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
