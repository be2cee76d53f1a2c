"""Any samples become bytes and come back equal; older ones are readable, newer ones refused."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any, List, Mapping, Optional, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit import recordings, samples
from udsprobe.recording.bodies.body import Packing, pack
from udsprobe.recording.bodies.columns import Columns, Gathered, change_of
from udsprobe.recording.bodies.leaves import Flattener, UnknownFieldError, hints, kind_of
from udsprobe.recording.bodies.series import Series
from udsprobe.recording.plain import from_json, to_json
from udsprobe.sample import Observation, Sample

WORDS = st.text(alphabet="aé/@:\udce9 0", max_size=4)
NUMBERS = st.integers(-2, 3) | st.integers(0, 1 << 63)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a supported type; few different ones, so that rows meet again."""
    kind = kind_of(hint)
    if kind.is_optional:
        plain = anything(hint.__args__[0])
        return st.none() | plain
    if is_dataclass(kind.what):
        return objects(kind.what)
    if kind.what is tuple:
        return st.lists(anything(kind.of), max_size=4).map(tuple)
    if kind.what is dict:
        return st.dictionaries(anything(kind.key), anything(kind.of), max_size=3)
    plain_ones = {
        int: NUMBERS,
        str: WORDS,
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
    }
    return plain_ones[kind.what]


def objects(kind: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: anything(hint) for name, hint in hints(kind).items()})


def in_a_block(values: List[Any]) -> bytes:
    flattener, gathered, before = Flattener(), Gathered(), {}
    for value in values:
        known, leaves = len(flattener.nodes), flattener.leaves(value)
        gathered.add(change_of(flattener.nodes, known, before, leaves))
        before = leaves
    return Packing(gathered.columns(flattener.nodes)).finish()


def one_by_one(values: List[Any]) -> List[bytes]:
    flattener, before, bodies = Flattener(), {}, []
    for value in values:
        known = len(flattener.nodes)
        leaves = flattener.leaves(value)
        bodies.append(pack(change_of(flattener.nodes, known, before, leaves)))
        before = leaves
    return bodies


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(objects(Sample), min_size=1, max_size=4))
def test_any_samples_come_back_equal(values: List[Sample]) -> None:
    assert list(Series(Sample, [in_a_block(values)])) == values
    assert list(Series(Sample, one_by_one(values))) == values


def test_the_samples_of_a_service_come_back_equal() -> None:
    values = list(recordings.service(60))
    assert list(Series(Sample, [in_a_block(values)])) == values
    assert list(Series(Sample, one_by_one(values))) == values


@settings(max_examples=20, deadline=None)
@given(objects(Observation))
def test_any_observation_comes_back_equal(value: Observation) -> None:
    assert from_json(Observation, to_json(value)) == value


def test_every_field_of_a_sample_can_be_recorded() -> None:
    seen = set()

    def walk(kind: Any) -> None:
        seen.add(kind)
        for hint in hints(kind).values():
            inner = kind_of(hint)
            while inner.what in (tuple, dict):
                inner = kind_of(inner.of)
            if is_dataclass(inner.what) and inner.what not in seen:
                walk(inner.what)

    walk(Sample)
    assert len(seen) > 10


@dataclass(frozen=True)
class Old:
    number: int
    rows: Tuple[int, ...]


@dataclass(frozen=True)
class New:
    number: int
    rows: Tuple[int, ...]
    maybe: Optional[Mapping[str, int]]
    known: int = 7


def test_a_field_that_was_not_written_yet_is_not_measured() -> None:
    body = in_a_block([Old(1, (0, 2)), Old(2, ())])
    assert list(Series(New, [body])) == [New(1, (0, 2), None), New(2, (), None)]
    assert from_json(New, to_json(Old(1, (0, 2)))) == New(1, (0, 2), None)


def test_a_field_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownFieldError, match=r"Old\.maybe"):
        list(Series(Old, [in_a_block([New(1, (), {})])]))
    with pytest.raises(UnknownFieldError, match=r"Old\.maybe"):
        from_json(Old, to_json(New(1, (), {})))


@dataclass(frozen=True)
class Longer:
    number: int
    rows: Tuple[int, ...]
    in_progress_again: New


def test_a_field_that_was_taken_away_is_passed_over() -> None:
    """Whatever was in it, and when it changes; it was in recordings that are kept."""
    values = [Longer(1, (5,), New(at, (at,), {"a": at}, at)) for at in (3, 3, 4)]
    assert list(Series(Old, [in_a_block(values)])) == [Old(1, (5,))] * 3


@dataclass(frozen=True)
class More:
    number: int
    rows: Tuple[int, ...]
    must: int


def test_a_field_that_must_be_there_is_missed() -> None:
    with pytest.raises(ValueError, match=r"More\.must is not in it"):
        list(Series(More, [in_a_block([Old(1, ())])]))


def test_unsupported_types_are_named() -> None:
    with pytest.raises(TypeError, match="cannot be recorded"):
        kind_of(List[int])


def test_one_row_that_did_not_change_is_small() -> None:
    quiet = samples.sample(connections=tuple(samples.connection(inode=i) for i in range(50)))
    alone, many = len(in_a_block([quiet])), len(in_a_block([quiet] * 60))
    assert many < alone + 100


NUMBERS_AND_ROWS = [[0, "number"], [0, "rows"], [2, "#"]]
EVERY = range(4096)
HURTS = {
    "too many numbers": {3: (EVERY, [65_000 + index % 2 for index in EVERY])},
    "rows that are repeated": {2: ([0], [(3, 3)])},
    "rows that are repeated or missing": {2: ([0], [(-1,)])},
    "numbers without a length": {3: ([0], [1 << 40])},
    "is no int": {1: ([0], [True]), 3: ([0], [0])},
    "too many samples": {},
}


@pytest.mark.parametrize("why", HURTS)
def test_columns_that_would_take_all_time_or_memory(why: str) -> None:
    columns = {1: ([0], [1]), **HURTS[why]}
    samples_ = len(EVERY) + (not HURTS[why])
    body = pack(Columns(samples_, 1, NUMBERS_AND_ROWS, columns))
    with pytest.raises(ValueError, match=why):
        list(Series(Old, [body]))


def test_bodies_that_follow_are_bounded_together() -> None:
    first = pack(Columns(4096, 1, NUMBERS_AND_ROWS, {1: ([0], [1]), 3: ([0], [0])}))
    assert len(list(Series(Old, [first]))) == 4096
    with pytest.raises(ValueError, match="too many samples"):
        Series(Old, [first, pack(Columns(1, 4, [], {1: ([0], [2])}))])
