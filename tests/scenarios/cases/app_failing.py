"""The application replies that it failed, and does so quickly."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, UNIX, Subject, case

ONE_IN_FOUR = ("one_in=4", "status=503")


@case("asyncio", BOTH, quick=UNIX)
def asyncio_that_fails(bench: Bench, fails: bool = True) -> Subject:
    """One request in four has an error, and is answered with 503."""
    server = bench.asyncio(*(ONE_IN_FOUR if fails else []))
    bench.load(server.address, connections=8, rate=400)
    return Subject([server.pid], [f"python {server.pid} answers so itself"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_whose_upstream_fails(bench: Bench, fails: bool = True) -> Subject:
    """nginx passes on what its upstream answers: one in four is 503."""
    upstream = bench.asyncio(*(ONE_IN_FOUR if fails else []))
    at = upstream.address
    nginx = bench.nginx(f"proxy_pass http://{f'unix:{at}' if at[0] == '/' else at};")
    bench.load(nginx.address, connections=8, rate=400)
    says = f"python {upstream.pid} at"
    return Subject(bench.family(nginx.pid), [at, says])


@case("nginx and its upstream", BOTH, needs=("nginx",))
def nginx_with_its_failing_upstream(bench: Bench, fails: bool = True) -> Subject:
    """Both are attached: the upstream is who fails."""
    upstream = bench.asyncio(*(ONE_IN_FOUR if fails else []))
    at = upstream.address
    nginx = bench.nginx(f"proxy_pass http://{f'unix:{at}' if at[0] == '/' else at};")
    bench.load(nginx.address, connections=8, rate=400)
    attached = [*bench.family(nginx.pid), upstream.pid]
    return Subject(attached, [f"python {upstream.pid} answers so itself"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_that_returns_errors(bench: Bench, fails: bool = True) -> Subject:
    """A rule of its own (of three connections in four, as limit_conn does) answers 503."""
    rule = 'if ($connection ~ "[1-3567]$") { return 503; }' if fails else ""
    nginx = bench.nginx(f"{rule} root /; try_files /etc/hostname =404;")
    bench.load(nginx.address, connections=8, rate=400)
    return Subject(bench.family(nginx.pid), ["answers so itself"])


@case("gunicorn", BOTH, quick=UNIX)
def gunicorn_that_crashes(bench: Bench, crash_at: int = 30) -> Subject:
    """A worker ends by SIGSEGV in its thirtieth request, and gunicorn starts another one."""
    server = bench.gunicorn(CRASH_AT=crash_at)
    bench.load(server.address, connections=8, rate=200)
    return Subject([server.pid], ["ended by SIGSEGV"])
