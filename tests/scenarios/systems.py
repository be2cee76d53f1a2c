"""Systems drawn by lot: services of parts with known costs, one illness, two, or none. Pure.

A system is a chain: clients, perhaps a proxy, a server, perhaps a service that it asks. A knob is
a parameter of one of these places; a cure sets knobs of one place to the values of a system that
is well. `service.c` has the knobs of programs, `client.c` those of clients.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple

from tests.scenarios.case import TCP, UNIX

CLIENT, PROXY, SERVER, UPSTREAM, SYSTEM = "client", "proxy", "server", "upstream", "system"
# From the clients inwards.
CHAIN = (CLIENT, PROXY, SERVER, UPSTREAM)
LOOP, THREADS, PREFORK = "loop", "threads", "prefork"
KINDS = (LOOP, THREADS, PREFORK)
STYLES = ("closed", "open", "polling", "retrying", "reconnecting")
MB = 1_000_000

Place = Tuple[str, str]  # where, and the knob's name there

# A program's knobs: the cause that a knob's illness has, and its value where all is well.
PROGRAM_KNOBS: Dict[str, Tuple[str, Any]] = {
    "spin_ms": ("app-cpu", 0),
    "lock_spin_ms": ("app-cpu", 0),
    "sleep_ms": ("app-blocked", 0),
    "lock_ms": ("app-blocked", 0),
    "sync_kb": ("app-blocked", 0),
    "backlog": ("accept-queue-full", 511),
    "seats": ("accept-starved", 128),
    "nofile": ("fd-limit", 4096),
    "cpu_pct": ("cpu-contention", 400),
    "pool": ("upstream-wait", 64),
    "keep": ("connection-churn", 1),
    "gone": ("connect-failing", 0),
}
CLIENT_KNOBS: Dict[str, Tuple[str, Any]] = {
    "read_rate": ("send-blocked", 0),
    "slice_ms": ("send-blocked", 0),
    "stop_after": ("send-blocked", 0),
    "reconnect": ("connection-churn", 0),
}
SYSTEM_KNOBS: Dict[str, Tuple[str, Any]] = {
    "noise": ("cpu-contention", 0),
    "transport": ("transport", UNIX),
    "bytes": ("transport", 64),
}
# Costs too small for clients that leave a pause to notice what is without them; and bytes that move
# easily.
EASY_BYTES_PER_S = 100 * MB
TRIFLES = {"spin_ms": 0.3, "sleep_ms": 0.3, "bytes": 16_384}
# Of what clients do with replies, fewer bytes are no cure: they would hide the reader.
READERS = ("read_rate", "slice_ms", "stop_after")


@dataclass(frozen=True)
class Cure:
    """What is changed at one place to take one cause away."""

    where: str
    cause: str
    change: Tuple[Tuple[Place, Any], ...]

    @property
    def name(self) -> str:
        return f"{self.where}:{self.cause}"


@dataclass(frozen=True)
class System:
    """One drawn system. `knobs`: by place; `others`: of clients that are well, beside the first.

    `attach`: the places that udsprobe observes. `illnesses`: what was planted, for people.
    """

    seed: int
    index: int
    style: str
    attach: Tuple[str, ...]
    illnesses: Tuple[str, ...]
    knobs: Tuple[Tuple[Place, Any], ...]
    others: Tuple[Tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.index}"

    def at(self, where: str) -> Dict[str, Any]:
        """The knobs of a place; none where there is no such place."""
        return {name: value for (place, name), value in self.knobs if place == where}

    def has(self, where: str) -> bool:
        return bool(self.at(where))

    def with_(self, change: Mapping[Place, Any]) -> System:
        """The same with some knobs set otherwise."""
        return replace(self, knobs=tuple(sorted({**dict(self.knobs), **change}.items())))

    def says(self) -> str:
        """For a person: what it is made of."""
        parts = [self.style, f"at {'+'.join(self.attach)}", "+".join(self.illnesses) or "well"]
        for where in (*CHAIN, SYSTEM):
            knobs = " ".join(f"{name}={value}" for name, value in self.at(where).items())
            parts += [f"{where}({knobs})"] if knobs else []
        others = " ".join(f"{name}={value}" for name, value in self.others)
        parts += [f"beside clients that are well({others})"] if others else []
        return " ".join(parts)


# -- cures -----------------------------------------------------------------------------------------


def well_values(where: str) -> Dict[str, Tuple[str, Any]]:
    """By knob of a place: its cause, and its value where all is well."""
    return {CLIENT: CLIENT_KNOBS, SYSTEM: SYSTEM_KNOBS}.get(where, PROGRAM_KNOBS)


def cures(system: System) -> List[Cure]:
    """Every cure that changes something in this system, one for each place and cause."""
    found: Dict[Tuple[str, str], List[Tuple[Place, Any]]] = {}
    for (where, name), value in system.knobs:
        cause, well = well_values(where).get(name, ("", value))
        if name == "bytes" and any(system.at(CLIENT).get(one) for one in READERS):
            continue
        if value != well and not (is_paced(system) and _is_trifle(system, name, value)):
            found.setdefault((where, cause), []).append(((where, name), well))
    return [Cure(where, cause, tuple(change)) for (where, cause), change in sorted(found.items())]


def is_paced(system: System) -> bool:
    """Its clients leave time between requests. Who asks without a pause always fills something."""
    clients = system.at(CLIENT)
    return any(clients.get(name) for name in ("think_ms", "burst_ms", "rate"))


def _is_trifle(system: System, name: str, value: Any) -> bool:
    if name == "bytes" and value * _rate_of(system.at(CLIENT)) <= 1.1 * EASY_BYTES_PER_S:
        return True
    return name in TRIFLES and value <= TRIFLES[name]


def cured(system: System, cure: Cure) -> System:
    """The system with that cure done."""
    return system.with_(dict(cure.change))


def well(system: System) -> System:
    """The system with every cure done."""
    return system.with_({place: value for one in cures(system) for place, value in one.change})


def causes_seen(system: System, cure: Cure) -> FrozenSet[str]:
    """What a verdict may call what this cure takes away, as seen from where it is attached.

    At its own place it has its own name. Behind an attached place, that one waits for it. Before
    all attached places nothing of it is to be seen, save readers, who fill every buffer, and who
    connects to them each time.
    """
    if cure.where == SYSTEM:
        return frozenset({cure.cause})
    places = [CHAIN.index(where) for where in system.attach]
    here = CHAIN.index(cure.where)
    if here in places:
        return frozenset({cure.cause})
    if here > min(places):
        own = {cure.cause} if cure.cause in SEEN_BY_WHO_CONNECTS else set()
        return frozenset({"upstream-wait", *own})
    adjacent = here == min(places) - 1 or not system.has(PROXY)
    if adjacent:
        at_the_door = cure.cause in ("connection-churn", "send-blocked")
        return frozenset({cure.cause} if at_the_door else ())
    if cure.cause != "send-blocked":
        return frozenset()
    # A proxy takes as much of a reply as there is room for on its way to who does not read it.
    small = (
        system.at(SYSTEM).get("bytes", 0)
        <= BUFFERED_BYTES[system.at(SYSTEM).get("transport", UNIX)]
    )
    return frozenset({cure.cause, *(["healthy"] if small else [])})


# What a sender's and a receiver's buffer hold at most: net.ipv4.tcp_wmem and tcp_rmem of 6.18 as
# they come, and SO_SNDBUF's default, which is all that a Unix socket has.
BUFFERED_BYTES = {TCP: 4_194_304 + 6_291_456, UNIX: 212_992}
SEEN_BY_WHO_CONNECTS = {"accept-queue-full", "connect-failing", "accept-starved", "fd-limit"}


# -- drawing ---------------------------------------------------------------------------------------


class Draft:
    """A system while it is drawn."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.knobs: Dict[Place, Any] = {}
        self.others: Dict[str, Any] = {}
        self.style = ""

    def has(self, where: str) -> bool:
        return any(place == where for place, _ in self.knobs)

    def set(self, where: str, **knobs: Any) -> None:
        """Set knobs of a place."""
        self.knobs.update({(where, name): value for name, value in knobs.items()})

    def get(self, where: str, name: str) -> Any:
        return self.knobs.get((where, name))


def draw(seed: int, index: int, noise: bool = False) -> System:
    """The system of this number: the same for the same arguments, always.

    Args:
        noise: a stranger burns one CPU beside half of the systems.
    """
    rng = random.Random(f"{seed}:{index}")
    draft = Draft(rng)
    _draw_well(draft)
    planted = _plant(draft)
    attach = rng.choice([(SERVER,), (PROXY,), (PROXY, SERVER)] if draft.has(PROXY) else [(SERVER,)])
    if draft.get(SERVER, "gone"):
        attach = (PROXY,)
    if noise and rng.random() < 0.5:
        draft.set(SYSTEM, noise=1)
    return System(
        seed,
        index,
        draft.style,
        attach,
        tuple(planted),
        tuple(sorted(draft.knobs.items())),
        tuple(sorted(draft.others.items())),
    )


def _draw_well(draft: Draft) -> None:
    """A service that has time to spare, and its clients."""
    rng = draft.random
    draft.style = rng.choice(STYLES)
    draft.set(SYSTEM, transport=rng.choice([UNIX, TCP]), bytes=_draw_bytes(rng))
    for where, share in ((PROXY, 0.5), (SERVER, 1.0), (UPSTREAM, 0.4)):
        if rng.random() < share:
            draft.set(where, kind=_draw_kind(draft, where), **_draw_program(rng, where))
    if draft.has(PROXY):
        draft.set(PROXY, keep=1, pool=64)
    if draft.has(UPSTREAM):
        draft.set(SERVER, keep=1, pool=64)
    draft.set(CLIENT, **_draw_clients(draft))


def _draw_kind(draft: Draft, where: str) -> str:
    return str(draft.random.choice(KINDS if where != PROXY else (LOOP, THREADS)))


def _draw_program(rng: random.Random, where: str) -> Dict[str, Any]:
    return {
        "spin_ms": round(rng.uniform(0.02, 0.2), 3) if where != PROXY else 0,
        "seats": 128,
        "backlog": 511,
        "one_in": 1,
        "timer": 1,
    }


def _draw_bytes(rng: random.Random) -> int:
    """Mostly small ones, as everywhere."""
    if rng.random() < 0.7:
        return int(10 ** rng.uniform(1, 4))
    return int(10 ** rng.uniform(4, 8))


def _draw_clients(draft: Draft) -> Dict[str, Any]:
    """So many requests that the bytes, and the CPUs, allow it easily."""
    rng, size = draft.random, draft.get(SYSTEM, "bytes")
    rate = max(1.0, min(rng.uniform(40, 400), EASY_BYTES_PER_S / size))
    count = max(1, min(rng.randint(4, 24), int(rate)))  # each asks at least once a second
    style = draft.style
    if style == "open":
        return {"connections": count, "rate": round(rate, 1), "poisson": 1, "from_due": 1}
    think_ms = round(1000 * count / rate, 1)
    knobs: Dict[str, Any] = {"connections": count, "think_ms": think_ms}
    if style == "polling":
        burst_ms = rng.choice([250, 500, 1000])
        if rate * burst_ms < 1000:  # not even one client
            burst_ms = 1000
        count = max(1, min(2 * count, int(rate * burst_ms / 1000)))
        knobs = {"connections": count, "burst_ms": burst_ms, "refuse_wait": 1}
    if style == "retrying":
        knobs.update(timeout_ms=rng.choice([500, 800]), retry_ms=1, refuse_wait=1)
    if style == "reconnecting":
        knobs.update(reconnect=rng.choice([10, 100]))
    return knobs


# -- illnesses -------------------------------------------------------------------------------------


# Clients without a pause come as fast as they may: costs are drawn as for so many.
UNPACED_PER_S = 200.0


def _somewhere(draft: Draft) -> str:
    places = [where for where in (SERVER, UPSTREAM) if draft.has(where)]
    return draft.random.choice([SERVER, *places])


def _rate(draft: Draft) -> float:
    """About how many requests a second come when all is well."""
    return _rate_of({name: value for (at, name), value in draft.knobs.items() if at == CLIENT})


def _rate_of(clients: Mapping[str, Any]) -> float:
    if clients.get("rate"):
        return float(clients["rate"])
    pause_ms = clients.get("think_ms") or clients.get("burst_ms")
    if not pause_ms:
        return UNPACED_PER_S
    return 1000.0 * float(clients["connections"]) / float(pause_ms)


def _rarity(draft: Draft) -> int:
    """One in so many is ill: some ten of a window at least, or the windows differ by chance."""
    rare: int = draft.random.choice([1, 1, 10])
    return rare if _rate(draft) >= 100.0 else 1


def _computes(draft: Draft) -> None:
    """Up to twice of what one CPU can do; or only one request in ten, for as long as ten."""
    rng, where = draft.random, _somewhere(draft)
    busy, rare = rng.uniform(0.9, 2.0), _rarity(draft)
    draft.set(where, spin_ms=round(min(200.0, 1000 * busy * rare / _rate(draft)), 2), one_in=rare)


def _sleeps(draft: Draft) -> None:
    rng = draft.random
    rare, timer = _rarity(draft), rng.choice([0, 1])
    where = _somewhere(draft)
    draft.set(where, sleep_ms=round(rng.uniform(10, 80) * rare**0.5, 1), one_in=rare, timer=timer)


def _holds_a_lock(draft: Draft) -> None:
    rng, where = draft.random, _somewhere(draft)
    _many_at_once(draft, where)
    held_ms = round(min(50.0, 1000 * rng.uniform(0.9, 2.0) / _rate(draft)), 2)
    draft.set(where, **{rng.choice(["lock_ms", "lock_spin_ms"]): held_ms})


def _many_at_once(draft: Draft, where: str) -> None:
    if draft.get(where, "kind") == LOOP:
        draft.set(where, kind=draft.random.choice([THREADS, PREFORK]))


def _writes_through(draft: Draft) -> None:
    draft.set(_somewhere(draft), sync_kb=draft.random.choice([4, 64, 1024]))


def _upstream_is_slow(draft: Draft) -> None:
    rng = draft.random
    _with_upstream(draft)
    draft.set(UPSTREAM, sleep_ms=round(rng.uniform(20, 80), 1), timer=1)


def _with_upstream(draft: Draft) -> None:
    if not draft.has(UPSTREAM):
        draft.set(UPSTREAM, kind=THREADS, **_draw_program(draft.random, UPSTREAM))
        draft.set(SERVER, keep=1, pool=64)


def _pool_is_small(draft: Draft) -> None:
    """The upstream has room for more at once than the pool asks for."""
    rng = draft.random
    _with_upstream(draft)
    draft.set(UPSTREAM, kind=THREADS, timer=1)
    pool = rng.randint(1, 2)
    wanted = pool * rng.uniform(1.2, 3.0)
    draft.set(UPSTREAM, sleep_ms=round(min(60.0, 1000 * wanted / _rate(draft)), 2))
    draft.set(SERVER, pool=pool)


def _queue_is_short(draft: Draft) -> None:
    rng = draft.random
    knobs = {"connections": rng.randint(40, 100), "burst_ms": 250, "reconnect": 1}
    _only_clients(draft, **knobs, refuse_wait=rng.choice([0, 1]))
    draft.style = "polling"
    front = PROXY if draft.has(PROXY) else SERVER
    _small_replies(draft)
    if front == PROXY and rng.random() < 0.5:
        draft.set(PROXY, keep=0)
        front = SERVER
    draft.set(front, backlog=rng.randint(1, 6))


def _only_clients(draft: Draft, **knobs: Any) -> None:
    for place in [place for place in draft.knobs if place[0] == CLIENT]:
        del draft.knobs[place]
    draft.set(CLIENT, **knobs)


def _small_replies(draft: Draft) -> None:
    draft.set(SYSTEM, bytes=min(draft.get(SYSTEM, "bytes"), 4096))


def _no_seats(draft: Draft) -> None:
    """Kept connections that are idle most of the time hold the seats; the others queue."""
    rng = draft.random
    front = PROXY if draft.has(PROXY) else SERVER
    if front == SERVER:
        _many_at_once(draft, SERVER)
    _small_replies(draft)
    _only_clients(
        draft, connections=rng.randint(12, 24), think_ms=rng.choice([20, 50]), reconnect=20
    )
    draft.style = "reconnecting"
    draft.set(front, seats=rng.randint(2, 5))


def _few_descriptors(draft: Draft) -> None:
    rng = draft.random
    front = PROXY if draft.has(PROXY) else SERVER
    if draft.get(front, "kind") == PREFORK:
        draft.set(front, kind=LOOP)
    _small_replies(draft)
    _only_clients(draft, connections=rng.randint(60, 100), think_ms=200)
    draft.style = "closed"
    draft.set(front, nofile=rng.randint(24, 48))


def _little_cpu(draft: Draft) -> None:
    """A quota below what the requests need."""
    rng = draft.random
    rate = min(400.0, _rate(draft))
    percent = rng.randint(10, 30)
    spin_ms = round(min(20.0, rng.uniform(1.1, 2.0) * percent * 10 / rate), 2)
    draft.set(SERVER, spin_ms=spin_ms, cpu_pct=percent)


def _connects_each_time(draft: Draft) -> None:
    """As fast as clients may, so that connections are what the server is busy with."""
    rng = draft.random
    _small_replies(draft)
    _only_clients(draft, connections=rng.randint(8, 24), reconnect=1)
    draft.style = "reconnecting"


def _reads_slowly(draft: Draft) -> None:
    rng = draft.random
    draft.set(SYSTEM, bytes=int(10 ** rng.uniform(6, 7.7)))
    _only_clients(draft, connections=rng.randint(2, 6), read_rate=rng.randint(400, 2000) * 1000)
    draft.style = "closed"
    _maybe_others(draft)


def _reads_in_steps(draft: Draft) -> None:
    """Steady: 64 KB, then a pause."""
    rng = draft.random
    draft.set(SYSTEM, bytes=int(10 ** rng.uniform(5.7, 7)))
    knobs = {"slice": 65536, "slice_ms": rng.choice([10, 20, 30])}
    _only_clients(draft, connections=rng.randint(2, 6), **knobs)
    draft.style = "closed"
    _maybe_others(draft)


def _reads_no_more(draft: Draft) -> None:
    rng = draft.random
    draft.set(SYSTEM, bytes=int(10 ** rng.uniform(6, 8)))
    _only_clients(draft, connections=rng.randint(1, 4), stop_after=65536)
    draft.style = "closed"
    _maybe_others(draft)


def _maybe_others(draft: Draft) -> None:
    """Clients that are well beside those that are not."""
    if draft.random.random() < 0.5:
        pause_ms = max(50.0, 40 * draft.get(SYSTEM, "bytes") / MB)
        draft.others = {"connections": 2, "think_ms": round(pause_ms, 1)}


def _moves_much(draft: Draft) -> None:
    rng = draft.random
    draft.set(SYSTEM, bytes=int(10 ** rng.uniform(6, 8)))
    _only_clients(draft, connections=rng.randint(2, 6))
    draft.style = "closed"


def _nobody_there(draft: Draft) -> None:
    if draft.has(PROXY):
        draft.set(SERVER, gone=1)
    else:
        _with_upstream(draft)
        draft.set(UPSTREAM, gone=1)


ILLNESSES: Dict[str, Callable[[Draft], None]] = {
    "computes": _computes,
    "sleeps": _sleeps,
    "lock": _holds_a_lock,
    "disk": _writes_through,
    "slow-upstream": _upstream_is_slow,
    "small-pool": _pool_is_small,
    "short-queue": _queue_is_short,
    "no-seats": _no_seats,
    "few-descriptors": _few_descriptors,
    "little-cpu": _little_cpu,
    "connects-each-time": _connects_each_time,
    "slow-reader": _reads_slowly,
    "steady-reader": _reads_in_steps,
    "stopped-reader": _reads_no_more,
    "moves-much": _moves_much,
    "nobody-there": _nobody_there,
}
# Those that bring their own clients or sizes cannot be planted beside one another.
OF_CLIENTS = {
    "short-queue",
    "no-seats",
    "few-descriptors",
    "connects-each-time",
    "slow-reader",
    "steady-reader",
    "stopped-reader",
    "moves-much",
}


def _plant(draft: Draft) -> List[str]:
    """No illness in a quarter of the systems, two in a fifth."""
    rng = draft.random
    lot = rng.random()
    if lot < 0.25:
        return []
    first = rng.choice(sorted(ILLNESSES))
    second = _beside(rng, first) if lot > 0.8 else None
    planted = [first, second] if second else [first]
    # Clients first: the costs of the others follow from their rate.
    planted.sort(key=lambda name: name not in OF_CLIENTS)
    for name in planted:
        ILLNESSES[name](draft)
    return planted


def _beside(rng: random.Random, first: str) -> Optional[str]:
    taken = OF_CLIENTS if first in OF_CLIENTS else {first}
    free = sorted(set(ILLNESSES) - taken - {first, "nobody-there"})
    return rng.choice(free) if first != "nobody-there" else None
