"""systemd's unit files of running services, from its directories, as PID 1 sees them.

Asks nobody: not systemctl, not D-Bus. Files only; what the manager holds in memory
may be older.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from udsprobe.doctor.facts import ConfigError, ProcessFacts, ServiceUnit, SocketUnit
from udsprobe.doctor.unit_file import UnitSettings, together
from udsprobe.servers.target_files import TargetFiles, Unreadable

# systemd.unit(5), the first has precedence.
DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
_FILE_MAX = 1 << 20


class UnitFiles:
    """The unit files of one host.

    Args:
        files: as whoever manages the units sees them.

    Attributes:
        errors: files that exist and cannot be read.
    """

    def __init__(self, files: TargetFiles, directories: Sequence[str] = DIRECTORIES) -> None:
        self._files = files
        self._directories = directories
        self.errors: List[ConfigError] = []

    def settings(self, name: str) -> Optional[Tuple[str, UnitSettings]]:
        """Path and settings of a unit with its drop-ins; None when it has no file."""
        path = next(filter(None, map(self._first, _candidates(name))), None)
        if path is None:
            return None
        paths = [path, *self._drop_ins(name)]
        texts = [text for text in map(self._text, paths) if text is not None]
        return path, together(texts)

    def _first(self, name: str) -> Optional[str]:
        for directory in self._directories:
            path = f"{directory}/{name}"
            try:
                if self._files.status(path) is not None:
                    return path
            except Unreadable:
                continue
        return None

    def _drop_ins(self, name: str) -> List[str]:
        """By file name; of several with one name that of the first directory."""
        chosen: Dict[str, str] = {}
        for folder in drop_in_folders(name):
            for directory in self._directories:
                for file in self._names(f"{directory}/{folder}"):
                    if file.endswith(".conf"):
                        chosen.setdefault(file, f"{directory}/{folder}/{file}")
        return [chosen[file] for file in sorted(chosen)]

    def _names(self, directory: str) -> Tuple[str, ...]:
        try:
            return self._files.names(directory)
        except Unreadable:
            return ()

    def _text(self, path: str) -> Optional[str]:
        try:
            return self._files.read(path, _FILE_MAX).raw.decode("utf-8", "surrogateescape")
        except Unreadable as error:
            self.errors.append(ConfigError("unreadable", path, str(error)))
            return None


def units_of(
    processes: Iterable[ProcessFacts], files: UnitFiles
) -> Tuple[Tuple[ServiceUnit, ...], Tuple[SocketUnit, ...]]:
    """The services that the processes are of, and their sockets."""
    services: List[ServiceUnit] = []
    sockets: List[SocketUnit] = []
    main: Dict[str, ProcessFacts] = {}
    for process in processes:
        if process.unit is not None:
            main.setdefault(process.unit, process)
    for name, process in main.items():
        found = files.settings(name)
        if found is None:
            continue
        path, settings = found
        services.append(ServiceUnit(name, process.pid, path, settings.limit_nofile))
        for socket in dict.fromkeys([_socket_of(name), *settings.sockets]):
            known = files.settings(socket)
            if known is not None:
                where, says = known
                sockets.append(SocketUnit(socket, where, says.listens, says.backlog, process.netns))
    return tuple(services), tuple(sockets)


def _socket_of(service: str) -> str:
    return service[: -len(".service")] + ".socket"


def _candidates(name: str) -> Tuple[str, ...]:
    """Its own file, then its template's: `app@one.service`, `app@.service`."""
    stem, dot, suffix = name.rpartition(".")
    prefix, at, _ = stem.partition("@")
    return (name, f"{prefix}@{dot}{suffix}") if at else (name,)


def drop_in_folders(name: str) -> Tuple[str, ...]:
    """`app-web.service` → its own, its template's, `app-.service.d`, `service.d`."""
    stem, dot, suffix = name.rpartition(".")
    folders = [f"{each}.d" for each in _candidates(name)]
    words = stem.partition("@")[0].split("-")
    prefixes = ["-".join(words[:end]) for end in range(len(words) - 1, 0, -1)]
    folders += [f"{prefix}-{dot}{suffix}.d" for prefix in prefixes]
    return (*folders, f"{suffix}.d")
