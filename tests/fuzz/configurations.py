"""Configuration files of the servers that doctor looks at, to the text and JSON it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import List, Tuple

from tests.fuzz.target import Target
from tests.unit import doctor_facts
from tests.visible import invisible
from udsprobe.doctor.caddy_config import hops
from udsprobe.doctor.examine import Machine, diagnosis
from udsprobe.doctor.facts import CaddyFacts, Facts, NginxFacts, ServiceUnit, SocketUnit
from udsprobe.doctor.nginx.config import destinations, read
from udsprobe.doctor.unit_file import together
from udsprobe.servers.nginx_files import Broken, statements
from udsprobe.views.documents.doctor_document import json_text
from udsprobe.views.text.doctor_text import render

NGINX = b"""worker_processes 2; worker_rlimit_nofile 99;
events { worker_connections 1024; accept_mutex on; }
http { map $http_upgrade $c { default upgrade; '' close; }
 upstream "a\\x1b" { least_conn; server unix:/run/a.sock max_fails=1; server b backup;
  keepalive 9; keepalive_timeout 60s; }
 server { listen 80 backlog=511 reuseport rcvbuf=8k; listen unix:/x.sock; # c
  location / { proxy_pass http://a; proxy_http_version 1.1; proxy_set_header Connection ""; }
  location /f { fastcgi_pass unix:/f; fastcgi_keep_conn on; } } }
stream { server { listen 1 udp; proxy_pass a; } }
"""
UNIT = b"""[Unit]
Description=a \\
 b
[Service]
LimitNOFILE=1K:infinity
Sockets=a.socket b.socket
LimitNOFILE=
[Socket]
ListenStream=/run/a
Backlog=128
Service=a.service
"""
CADDY = b"""{"apps":{"http":{"servers":{"s":{"listen":[":80"],"routes":[{"handle":[{"handler":
"reverse_proxy","upstreams":[{"dial":"unix//run/a.sock"},{"dial":"b:1"}]}]}]}}}}}"""
MACHINE = Machine("6.18", "x86_64", 2, "host")


def shown(facts: Facts) -> None:
    """Examine and show: no character of a file's acts on a terminal."""
    found = diagnosis("1", MACHINE, facts)
    assert not invisible(render(found, 80), "\n")
    json.loads(json_text(found).encode("ascii"))


def _nginx(data: bytes) -> None:
    config = read(statements(data, "nginx.conf"))
    destinations(config)
    facts = NginxFacts(5, "/etc/nginx/nginx.conf", (1, 24, 0), (6, 7), config, 1, 9)
    shown(replace(doctor_facts.healthy(), nginx=(facts,)))


def _unit(data: bytes) -> None:
    first, _, second = data.decode("utf-8", "surrogateescape").partition("%%")
    settings = together([first, second])
    service = ServiceUnit("a.service", 5, "/a.service", settings.limit_nofile)
    socket = SocketUnit("a.socket", "/a.socket", settings.listens, settings.backlog)
    shown(replace(doctor_facts.healthy(), services=(service,), sockets=(socket,)))


def _caddy(data: bytes) -> None:
    config = json.loads(data.decode("utf-8", "replace"))
    facts = CaddyFacts(5, "/etc/caddy.json", hops(config))
    shown(replace(doctor_facts.healthy(), caddy=(facts,)))


def _seeds(text: bytes) -> List[bytes]:
    return [text, *(part for part in text.split(b"\n\n") if part)]


TARGETS: Tuple[Target, ...] = (
    Target("nginx", lambda: _seeds(NGINX), _nginx, (Broken,)),
    Target("unit", lambda: [UNIT, b"[Socket]\nListenStream=80\n%%[Socket]\nBacklog=9"], _unit),
    Target("caddy", lambda: _seeds(CADDY), _caddy, (ValueError, RecursionError)),
)
