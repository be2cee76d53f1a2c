"""What an nginx configuration says about its sockets, read from parsed directives.

Knows nginx's contexts and how directives are inherited: a plain one from the
enclosing block, `proxy_set_header` only where a block has none of its own
(`ngx_http_proxy_merge_loc_conf`). Knows no files and no defaults that depend on
the version: those are the rules' business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Tuple

from udsprobe.doctor.nginx.values import milliseconds, number, size_bytes

PASSES = ("proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass")
# They choose the peer, and take the place of a `keepalive` that stands before them.
METHODS = frozenset({"least_conn", "ip_hash", "hash", "random", "least_time", "queue", "sticky"})


@dataclass(frozen=True)
class Directive:
    """One statement. `file` is as its server names it; `block` is None without braces."""

    name: str
    args: Tuple[str, ...]
    file: str
    line: int
    block: Optional[Tuple[Directive, ...]] = None

    @property
    def place(self) -> str:
        """`FILE:LINE`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Upstream:
    """A named group of servers.

    Attributes:
        servers: addresses without those marked `down`; backups apart.
        keepalive: of the directive; None without one. keepalive_place: where it stands.
        overridden_by: the balancing method that stands after `keepalive`.
        idle_ms: `keepalive_timeout`; None when not set.
    """

    name: str
    place: str
    servers: Tuple[str, ...] = ()
    backups: Tuple[str, ...] = ()
    keepalive: Optional[int] = None
    keepalive_place: Optional[str] = None
    overridden_by: Optional[Directive] = None
    idle_ms: Optional[int] = None
    stream: bool = False


@dataclass(frozen=True)
class Pass:
    """Where requests are handed on.

    Attributes:
        directive: `proxy_pass` … targets: upstream names or addresses; empty when
            they depend on a variable that the configuration does not settle.
        http_version: of `proxy_http_version`; None when not set.
        connection: values that the header `Connection` takes for an ordinary request;
            None when it is not set, empty when it cannot be told.
        keep_conn: `fastcgi_keep_conn`.
    """

    directive: str
    place: str
    targets: Tuple[str, ...]
    http_version: Optional[str] = None
    connection: Optional[Tuple[str, ...]] = None
    connection_place: Optional[str] = None
    keep_conn: bool = False
    stream: bool = False


@dataclass(frozen=True)
class Listen:
    """A `listen` of a server. backlog: None when not given."""

    place: str
    address: str
    backlog: Optional[int] = None
    reuseport: bool = False
    receive_bytes: Optional[int] = None
    send_bytes: Optional[int] = None
    datagram: bool = False


@dataclass(frozen=True)
class Setting:
    """A directive with one value, and where it stands."""

    value: str
    place: str


@dataclass(frozen=True)
class NginxConfig:
    """What the rules look at."""

    upstreams: Tuple[Upstream, ...] = ()
    passes: Tuple[Pass, ...] = ()
    listens: Tuple[Listen, ...] = ()
    settings: Dict[str, Setting] = field(default_factory=dict)

    def upstream(self, name: str, *, stream: bool) -> Optional[Upstream]:
        """The group of this name; http and stream have each their own."""
        named = (one for one in self.upstreams if one.name == name and one.stream == stream)
        return next(named, None)

    def number(self, name: str) -> Optional[int]:
        """A main or events directive as a number; None when absent or no number."""
        setting = self.settings.get(name)
        return None if setting is None else number(setting.value)


@dataclass(frozen=True)
class _Inherited:
    http_version: Optional[str] = None
    headers: Tuple[Directive, ...] = ()
    keep_conn: bool = False
    stream: bool = False


def read(tree: Iterable[Directive]) -> NginxConfig:
    """The configuration, includes already in their places."""
    return _Reading().of(tuple(tree))


def destinations(config: NginxConfig) -> Tuple[str, ...]:
    """Every address that requests are handed to, once, in the order met."""
    found: Dict[str, None] = {}
    for handed in config.passes:
        for target in handed.targets:
            group = config.upstream(target, stream=handed.stream)
            members = (target,) if group is None else (*group.servers, *group.backups)
            found.update(dict.fromkeys(members))
    return tuple(found)


class _Reading:
    """One walk over the tree."""

    def __init__(self) -> None:
        self._upstreams: List[Upstream] = []
        self._passes: List[Pass] = []
        self._listens: List[Listen] = []
        self._settings: Dict[str, Setting] = {}
        self._maps: Dict[str, Directive] = {}

    def of(self, tree: Tuple[Directive, ...]) -> NginxConfig:
        for one in tree:
            if one.name == "events":
                self._settle(one.block or ())
        self._settle(tree)
        for one in tree:
            if one.name in ("http", "stream"):
                self._maps = {
                    each.args[-1]: each
                    for each in one.block or ()
                    if each.name == "map" and len(each.args) == 2
                }
                self._block(one.block or (), _Inherited(stream=one.name == "stream"))
        return NginxConfig(
            tuple(self._upstreams), tuple(self._passes), tuple(self._listens), self._settings
        )

    def _settle(self, block: Iterable[Directive]) -> None:
        for one in block:
            if one.block is None and len(one.args) == 1:
                self._settings[one.name] = Setting(one.args[0], one.place)

    def _block(self, block: Tuple[Directive, ...], outer: _Inherited) -> None:
        inner = _narrowed(block, outer)
        for one in block:
            if one.name == "upstream" and one.block is not None and one.args:
                self._upstreams.append(_upstream(one, outer.stream))
            elif one.name == "listen" and one.args:
                self._listens.append(_listen(one))
            elif one.name in PASSES and one.args:
                self._passes.append(self._pass(one, inner))
            elif one.block is not None and one.name != "map":
                self._block(one.block, inner)

    def _pass(self, one: Directive, inner: _Inherited) -> Pass:
        header = next(
            (each for each in inner.headers if each.args and each.args[0].lower() == "connection"),
            None,
        )
        return Pass(
            directive=one.name,
            place=one.place,
            targets=self._targets(one.args[0]),
            http_version=inner.http_version,
            connection=None if header is None else self._ordinary(header),
            connection_place=None if header is None else header.place,
            keep_conn=inner.keep_conn,
            stream=inner.stream,
        )

    def _targets(self, argument: str) -> Tuple[str, ...]:
        """What is meant by `http://$backend/x`: the values of its map, if that settles it."""
        if "$" not in argument:
            return tuple(filter(None, [target(argument)]))
        scheme, separator, rest = argument.rpartition("://")
        variable = rest.split("/", 1)[0]
        settled = self._maps.get(variable)
        if settled is None:
            return ()
        values = [_value(each) for each in settled.block or () if each.args]
        if any("$" in value for value in values):
            return ()
        named = (target(f"{scheme}{separator}{value}") for value in values if value)
        return tuple(dict.fromkeys(filter(None, named)))

    def _ordinary(self, header: Directive) -> Tuple[str, ...]:
        """Values of the header `Connection` where the client asks for no upgrade."""
        value = header.args[1] if len(header.args) > 1 else ""
        if "$" not in value:
            return (value.lower(),)
        settled = self._maps.get(value)
        if settled is None or settled.args[0] != "$http_upgrade":
            return ()
        by_key = {each.name: _value(each) for each in settled.block or ()}
        # An absent variable is the empty string; without an entry, `default` or nothing.
        ordinary = by_key.get("", by_key.get("default", ""))
        return () if "$" in ordinary else (ordinary.lower(),)


def _value(entry: Directive) -> str:
    return entry.args[0] if entry.args else ""


def _narrowed(block: Tuple[Directive, ...], outer: _Inherited) -> _Inherited:
    headers = tuple(one for one in block if one.name == "proxy_set_header")
    version = [one.args[0] for one in block if one.name == "proxy_http_version" and one.args]
    keep = [one.args[0] for one in block if one.name == "fastcgi_keep_conn" and one.args]
    return _Inherited(
        http_version=version[-1] if version else outer.http_version,
        headers=headers or outer.headers,
        keep_conn=keep[-1] == "on" if keep else outer.keep_conn,
        stream=outer.stream,
    )


def target(argument: str) -> Optional[str]:
    """The upstream name or the address in the argument of a `…_pass`.

    `http://unix:/run/app.sock:/uri` → `unix:/run/app.sock`; `http://app/x` → `app`.
    """
    rest = argument.split("://", 1)[-1]
    if rest.startswith("unix:"):
        path = rest[len("unix:") :].split(":", 1)[0]
        return f"unix:{path}" if path else None
    # Nothing before an `@` belongs to an address; it may be a password.
    return rest.split("/", 1)[0].rsplit("@", 1)[-1] or None


def _upstream(one: Directive, stream: bool) -> Upstream:
    block = one.block or ()
    servers = [each for each in block if each.name == "server" and each.args]
    running = [each for each in servers if "down" not in each.args[1:]]
    keep = next((each for each in block if each.name == "keepalive" and each.args), None)
    after = block[block.index(keep) + 1 :] if keep is not None else ()
    idle = [each for each in block if each.name == "keepalive_timeout" and each.args]
    return Upstream(
        name=one.args[0],
        place=one.place,
        servers=tuple(each.args[0] for each in running if "backup" not in each.args),
        backups=tuple(each.args[0] for each in running if "backup" in each.args),
        keepalive=number(keep.args[0]) if keep is not None else None,
        keepalive_place=keep.place if keep is not None else None,
        overridden_by=next((each for each in after if each.name in METHODS), None),
        idle_ms=milliseconds(idle[-1].args[0]) if idle else None,
        stream=stream,
    )


def _listen(one: Directive) -> Listen:
    options = dict(each.split("=", 1) for each in one.args[1:] if "=" in each)
    return Listen(
        place=one.place,
        address=one.args[0],
        backlog=number(options.get("backlog", "")),
        reuseport="reuseport" in one.args[1:],
        receive_bytes=size_bytes(options.get("rcvbuf", "")),
        send_bytes=size_bytes(options.get("sndbuf", "")),
        datagram=bool({"udp", "quic"} & set(one.args[1:])),
    )
