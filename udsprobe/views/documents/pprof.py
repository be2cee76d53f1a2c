"""Stacks in the format of pprof: a compressed message `perftools.profiles.Profile`.

Fields by proto/profile.proto of github.com/google/pprof. The message is written by hand: what a
compiler of Protocol Buffers makes would bring a library of 1 MB along for these forty lines.
"""

from __future__ import annotations

import gzip
from typing import Dict, Iterable, List, Sequence

from udsprobe.model.report import CodeStack
from udsprobe.views.documents.report_document import utf8

_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING_TABLE = 1, 2, 4, 5, 6
_TIME_NS, _DURATION_NS, _PERIOD_TYPE, _PERIOD = 9, 10, 11, 12
_NS_PER_S = 1_000_000_000
_LENGTH_DELIMITED = 2
_RAN, _SLEPT = ("samples", "cpu"), ("sleeps", "asleep")


def pprof(
    stacks: Iterable[CodeStack], comms: Dict[int, str], *, hz: int, unix_s: float, sampled_s: float
) -> bytes:
    """One profile: samples, and the CPU time that they stand for; or sleeps, and their time.

    Args:
        comms: pid → name of the process, which is the outermost frame.
        hz: samples a second.
        unix_s: when it began. sampled_s: how long it took.
    """
    made = _Profile()
    period_ns = _NS_PER_S // hz
    for each in stacks:
        made.kinds = _RAN if each.total_us is None else _SLEPT
        frames = [f"{comms.get(each.pid, 'pid')} {each.pid}", *each.frames]
        spent_ns = each.samples * period_ns
        made.add(frames, each.samples, spent_ns if each.total_us is None else _ns(each.total_us))
    return gzip.compress(made.message(period_ns, unix_s, sampled_s), mtime=0)


def _ns(us: float) -> int:
    return round(us * 1000)


class _Profile:
    def __init__(self) -> None:
        self._texts: Dict[str, int] = {"": 0}
        self._functions: Dict[str, int] = {}
        self._samples: List[bytes] = []
        self.kinds = _RAN

    def add(self, frames: Sequence[str], samples: int, spent_ns: int) -> None:
        # Innermost first; a location of its own for each function, of the same number.
        locations = [self._function(each) for each in reversed(frames)]
        self._samples.append(_packed(1, locations) + _packed(2, (samples, spent_ns)))

    def message(self, period_ns: int, unix_s: float, sampled_s: float) -> bytes:
        counts, times = self.kinds
        types = [self._type(counts, "count"), self._type(times, "nanoseconds")]
        functions = [self._described(name, number) for name, number in self._functions.items()]
        parts = [_bytes(_SAMPLE_TYPE, each) for each in types]
        parts += [_bytes(_SAMPLE, each) for each in self._samples]
        for number, function in enumerate(functions, start=1):
            line = _bytes(4, _number(1, number))
            parts.append(_bytes(_LOCATION, _number(1, number) + line))
            parts.append(_bytes(_FUNCTION, function))
        parts += [_bytes(_STRING_TABLE, utf8(text).encode()) for text in self._texts]
        parts.append(_number(_TIME_NS, int(unix_s * _NS_PER_S)))
        parts.append(_number(_DURATION_NS, int(sampled_s * _NS_PER_S)))
        parts.append(_bytes(_PERIOD_TYPE, types[1]) + _number(_PERIOD, period_ns))
        return b"".join(parts)

    def _function(self, name: str) -> int:
        return self._functions.setdefault(name, len(self._functions) + 1)

    def _described(self, name: str, number: int) -> bytes:
        text = self._text(name)
        return _number(1, number) + _number(2, text) + _number(3, text)

    def _type(self, name: str, unit: str) -> bytes:
        return _number(1, self._text(name)) + _number(2, self._text(unit))

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))
