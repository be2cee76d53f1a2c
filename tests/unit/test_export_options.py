"""`udsprobe export`'s own options: what is wrong is one line, before anything is observed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import List

import pytest

from udsprobe.cli import main
from udsprobe.commands.live import otlp_push
from udsprobe.commands.live.scrape_server import ScrapeServer
from udsprobe.errors import UsageError

OURSELVES = str(os.getpid())


def line_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["export", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "address",
    [
        "",
        "9435",
        "localhost",
        "127.0.0.1:65536",
        "::1:9435",
        "[::1]",
        "a b:1",
        "x:y",
        "\x1b[2J:1",
        "é..é:1",
    ],
)
def test_no_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(capsys, "--pid", OURSELVES, "--bind", address)
    assert line.startswith("udsprobe: error[usage]: --bind ") and "\x1b" not in line


@pytest.mark.parametrize("address", ["192.0.2.1:9435", "no-such-host.invalid:9435"])
def test_not_an_address_of_ours(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(capsys, "--pid", OURSELVES, "--bind", address)
    assert line.startswith(f"udsprobe: error[cannot-bind]: cannot listen on {address}: ")


def test_an_address_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = line_of(capsys, "--pid", OURSELVES, "--bind", address)
    assert f"error[cannot-bind]: cannot listen on {address}: Address already in use" in line


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1:0", "127.0.0.1"), (":0", "0.0.0.0")])
def test_where_it_serves(address: str, host: str) -> None:
    server = ScrapeServer(address, lambda: None)
    assert server.url.startswith(f"http://{host}:") and server.url.endswith("/metrics")
    server.close()


@pytest.mark.parametrize(
    "url", ["", "collector:4317", "ftp://x", "http://", "grpc://:4317", "http://x:99999", "://"]
)
def test_no_collector(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "error[usage]: --otlp " in line_of(capsys, "--pid", OURSELVES, "--otlp", url)


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("http://c:4318", "", ("http", "http://c:4318/v1/metrics", None)),
        ("https://c/otlp/v1/metrics", "", ("http", "https://c/otlp/v1/metrics", None)),
        ("grpc://c:4317", "", ("grpc", "c:4317", True)),
        ("grpcs://c:4317", "", ("grpc", "c:4317", False)),
        ("http://c:4317", "grpc", ("grpc", "c:4317", True)),
        ("https://c:4317", "grpc", ("grpc", "c:4317", False)),
        ("env", "", ("http", None, None)),
        ("env", "grpc", ("grpc", None, None)),
    ],
)
def test_where_it_is_pushed(
    url: str, environment: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", environment)
    assert otlp_push._where(url) == expected


@pytest.mark.parametrize("text", ["often", "-1", "99", "1e3", "²"])
def test_no_push_interval(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", text)
    with pytest.raises(UsageError, match="is not an interval"):
        otlp_push.OtlpPusher("http://127.0.0.1:9", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "missing", "package"),
    [
        (["--bind", "127.0.0.1:0"], "prometheus_client", "pip install prometheus-client"),
        (["--otlp", "http://127.0.0.1:9"], "opentelemetry.sdk", "opentelemetry-sdk"),
        (["--otlp", "grpc://127.0.0.1:9"], "grpc", "opentelemetry-exporter-otlp-proto-grpc"),
    ],
)
def test_a_missing_package_is_named(arguments: List[str], missing: str, package: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None\n"
    program += "from udsprobe.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "export", "--pid", OURSELVES, *arguments],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "error[no-package]: " in done.stderr and package in done.stderr


def test_too_few_series(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error[usage]: " in line_of(capsys, "--pid", OURSELVES, "--max-series", "999")


def test_nothing_to_observe(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to attach to" in line_of(capsys, "--bind", "127.0.0.1:0")


def test_other_commands_do_not_load_the_libraries() -> None:
    program = (
        "import sys; from udsprobe.cli import main; main(['export', '--help'])\n"
        "sys.exit('prometheus_client' in sys.modules or 'opentelemetry' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=-3).returncode == 0
