"""Comparisons of documents whose difference is known."""

from __future__ import annotations

import re
from math import exp, log
from statistics import stdev
from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compared import CALLS, STAGES, doing, listening, made, run, scattered, slower
from udsprobe.compare import Run, compare, run_of
from udsprobe.compare.comparison import Comparison, Figure
from udsprobe.compare.noise import Error, blocks, half_width, of_ratio, student_t
from udsprobe.compare.quantities import FIGURES
from udsprobe.compare.tally import NotAReport, added, middle_of, tally

SEND_HALVED = {**STAGES, "send": 6.0}


def named(comparison: Comparison, name: str) -> Figure:
    every = [*comparison.figures, *comparison.stages, *comparison.syscalls]
    return next(figure for figure in every if figure.name == name)


def against(a: List[Any], b: List[Any]) -> Comparison:
    return compare([run(a, "a")], [run(b, "b")])


def test_a_file_against_itself_is_no_difference() -> None:
    same = scattered(1)
    found = against(same, same)
    assert found.different is False
    assert {figure.delta for figure in found.figures} == {0.0}
    assert found.summary.startswith("No difference beyond the noise: mean 39.8 µs → 39.8 µs")
    assert not any(figure.exceeds_noise for figure in [*found.stages, *found.syscalls])


def test_a_shorter_stage_is_found_and_named() -> None:
    found = against(scattered(1, scatter=0.005), scattered(2, stages=SEND_HALVED, scatter=0.005))
    assert found.different is True
    mean, send = named(found, "latency_mean"), named(found, "send")
    assert mean.exceeds_noise and send.exceeds_noise
    assert send.share_of_delta_pct == pytest.approx(100, abs=15)
    assert not named(found, "recv_wait").exceeds_noise
    assert found.summary.startswith(
        "B is 15 % faster (13 to 18), nearly all of it send calls: mean"
    )


def test_a_longer_stage_is_slower() -> None:
    found = against(scattered(1, scatter=0.005), scattered(2, 20, {**STAGES, "app": 40.0}, 0.005))
    assert found.summary.startswith("B is 49 % slower (")
    assert "nearly all of it the app: mean 40 µs → 59.7 µs" in found.summary


@given(*(st.lists(st.floats(0, 1e6), min_size=5, max_size=5) for _ in range(2)))
@settings(max_examples=60, deadline=None)
def test_deltas_of_stages_add_up_to_the_delta_of_the_mean(a: List[float], b: List[float]) -> None:
    documents = [made(977, dict(zip(STAGES, stages)), before_accept=stages[4]) for stages in (a, b)]
    found = compare([run(documents[:1])], [run(documents[1:])])
    mean = named(found, "latency_mean")
    assert mean.a is not None and mean.b is not None and mean.delta is not None
    parts = [stage.delta for stage in found.stages if stage.delta is not None]
    assert len(parts) == 5
    assert sum(parts) == pytest.approx(mean.delta, abs=0.006 + 1e-9 * (mean.a + mean.b))
    if abs(mean.delta) > 1:
        shares = [stage.share_of_delta_pct or 0.0 for stage in found.stages]
        assert sum(shares) == pytest.approx(100, abs=1 + 1e-9 * max(map(abs, shares)))


def test_same_things_are_rarely_called_different() -> None:
    """Pairs of runs that scatter by 3 % around a slow drift."""
    wrong = sum(
        against(scattered(n), scattered(1000 + n)).different is not False for n in range(20)
    )
    assert wrong <= 1


def test_one_window_each_has_no_known_noise() -> None:
    found = against([made()], [made(stages=SEND_HALVED)])
    assert (found.different, found.noise.taken_from) == (None, None)
    mean = named(found, "latency_mean")
    assert (mean.exceeds_noise, mean.noise, mean.delta) == (None, None, -6.0)
    assert mean.reason is not None and "one window" in mean.reason
    assert found.summary.startswith("Cannot tell whether A and B differ (mean 40 µs → 34 µs")
    assert "; nearly all of it send calls)" in found.summary


def test_one_window_each_within_the_floor_is_no_difference() -> None:
    found = against([made()], [made(stages={**STAGES, "send": 12.3})])
    assert named(found, "latency_mean").exceeds_noise is False
    assert named(found, "latency_p50").exceeds_noise is False
    assert found.different is False


def test_three_intervals_are_too_few() -> None:
    found = against(scattered(1, 3), scattered(2, 3, SEND_HALVED))
    mean = named(found, "latency_mean")
    assert mean.exceeds_noise is None
    assert mean.reason == "needs 4 intervals in which it was measured"


def test_repeated_runs_give_the_noise() -> None:
    def side(stages: Dict[str, float], *factors: float) -> List[Run]:
        return [run([made(stages={k: v * f for k, v in stages.items()})]) for f in factors]

    apart = compare(side(STAGES, 0.99, 1.0, 1.01), side(SEND_HALVED, 0.99, 1.0, 1.01))
    assert (apart.different, apart.noise.taken_from) == (True, "runs")
    assert named(apart, "latency_mean").exceeds_noise is True
    assert (apart.a.runs, apart.a.intervals) == (3, 0)
    noisy = compare(side(STAGES, 0.8, 1.0, 1.2), side(SEND_HALVED, 0.8, 1.0, 1.2))
    assert noisy.different is False


def test_a_single_run_is_given_the_scatter_of_the_others_runs() -> None:
    stages = {**dict.fromkeys(STAGES, 0.0), "app": 130.0}
    three = [run([made(stages={**stages, "app": mean})]) for mean in (90.0, 100.0, 110.0)]
    mean = named(compare(three, [run([made(stages=stages)])]), "latency_mean")
    scatter = stdev(log(value) for value in (90.0, 100.0, 110.0))
    expected = half_width(Error(scatter / 3**0.5, 2), Error(scatter, 2))
    assert mean.ratio_low == pytest.approx(1.3 * exp(-expected))
    assert mean.ratio_high == pytest.approx(1.3 * exp(expected))
    assert mean.noise == pytest.approx(100 * 1.3 - 100 * mean.ratio_low)
    assert mean.exceeds_noise is False


def test_runs_that_agree_by_chance_keep_the_noise_of_their_intervals() -> None:
    one, other = run(scattered(3)), run(scattered(3))
    found = named(compare([one, other], [one, other]), "latency_mean")
    assert found.noise is not None and found.noise > 0


def test_one_run_each_on_a_crowded_machine_is_not_judged() -> None:
    crowded = scattered(2, stages=SEND_HALVED, scatter=0.005, runq=0.3)
    found = against(scattered(1, scatter=0.005), crowded)
    mean = named(found, "latency_mean")
    assert mean.exceeds_noise is None
    assert (
        mean.reason is not None
        and "a CPU may explain it, 38 % of the threads' busy time in B" in (mean.reason)
    )
    assert named(found, "socket_bytes_per_request").exceeds_noise is False
    assert any("waiting for busy CPUs" in caveat for caveat in found.caveats)
    repeated = compare([run(scattered(n, 8)) for n in (1, 2, 3)], [run(crowded)] * 3)
    assert named(repeated, "latency_mean").exceeds_noise is not None


def test_more_system_calls_are_named() -> None:
    more = {**CALLS, "read": 2.0}
    found = against(scattered(1, scatter=0.001), scattered(2, scatter=0.001, calls=more))
    assert found.different is True
    assert found.syscalls[0].name == "read"
    assert found.syscalls[0].delta == pytest.approx(1.0)
    assert "but these differ: system calls per request 3 → 4" in found.summary


def test_no_request_cannot_be_compared() -> None:
    found = against(scattered(1), [made(0) for _ in range(5)])
    mean = named(found, "latency_mean")
    assert (mean.b, mean.delta, mean.reason) == (None, None, "no request was served in B")
    assert found.summary.startswith("Latency cannot be compared: no request was served in B")
    assert named(found, "requests_per_s").b == 0.0


def test_not_measured_is_none_and_says_so() -> None:
    bare = made()
    bare["requests"]["served"] = bare["requests"]["syscalls_per_request"] = None
    bare["time"] = bare["listeners"] = bare["syscalls"] = None
    found = against([bare], [bare])
    known = {figure.name for figure in found.figures if figure.a is not None}
    assert known == set()
    assert {figure.reason for figure in found.figures} == {"not measured in A"}


def test_percentiles_need_requests_beyond_them() -> None:
    found = against([made(500)], [made(500)])
    assert named(found, "latency_p90").reason != named(found, "latency_p999").reason
    assert named(found, "latency_p999").reason == "fewer than 10 requests lie beyond it"


def test_both_sides_of_the_sentence_name_their_transport() -> None:
    tcp = [listening(d, "tcp", "*:80") for d in scattered(1, scatter=0.005)]
    unix = [listening(d, "unix", "/a") for d in scattered(2, 20, SEND_HALVED, 0.005)]
    found = against(tcp, unix)
    assert "faster (13 to 18) (tcp → unix), " in found.summary
    assert (found.a.served_on, found.b.served_on) == (["tcp *:80"], ["unix /a"])


def test_doubts_are_said() -> None:
    other = made(2000)
    other["host"]["kernel"] = "0.1"
    other["probe"]["events_lost"]["ring_full"] = 3
    other["requests"]["served"]["turn_based"] = False
    other["probe"]["detail"] = "light"
    caveats = "\n".join(against([made()], [other]).caveats)
    doubts = ("different kernels", "different detail", "10,000 and 2,000 requests/s", "B lost 3")
    for said in (*doubts, "not one request"):
        assert said in caveats, said
    assert against([made()], [made()]).caveats == []


def test_figures_are_always_the_same() -> None:
    found = against([made()], [made()])
    assert [figure.name for figure in found.figures] == [each.name for each in FIGURES]
    assert [stage.name for stage in found.stages] == ["before_accept", *STAGES]


def test_intervals_add_up_to_the_window() -> None:
    parts = [made(100), made(300, SEND_HALVED, duration_s=2.0)]
    whole = added([tally(each) for each in parts])
    assert whole.requests == 400
    assert whole.of("latency_us") == pytest.approx(100 * 40 + 300 * 34)
    assert whole.of("duration_s") == 3.0
    assert whole.of("cpu_us") == pytest.approx(0.5 * 2 * 3e6)
    assert whole.by_syscall["read"] == 400
    assert whole.percentiles["p50"] == pytest.approx(34 * 0.9)


def test_what_is_not_measured_in_one_interval_is_in_none() -> None:
    bare = made()
    bare["time"] = None
    assert added([tally(made()), tally(bare)]).of("cpu_us") is None


def test_documents_of_the_first_version_have_no_cpu_time() -> None:
    old = made()
    del old["time"]["total_s"]
    assert tally(old).of("cpu_us") is None


def test_the_middle_is_by_weight() -> None:
    assert middle_of([(1.0, 1.0), (2.0, 1.0), (9.0, 5.0)]) == 9.0
    assert middle_of([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0


def test_percentiles_of_windows_and_of_intervals_are_not_mixed() -> None:
    parts = [made(100), made(100), made(300, SEND_HALVED)]
    window = made(500, {"recv_wait": 90.0, "recv": 0.0, "app": 0.0, "send": 0.0})
    recorded = run_of("recording", parts, window)
    assert named(compare([recorded], [recorded]), "latency_p50").a == pytest.approx(81)
    mixed = compare([recorded], [run(parts)])
    assert named(mixed, "latency_p50").a == named(mixed, "latency_p50").b
    assert named(mixed, "latency_mean").a == pytest.approx(90)
    assert mixed.a.percentiles_from == mixed.b.percentiles_from == "intervals"


def test_blocks_lose_nothing() -> None:
    parts = [tally(made(n)) for n in range(1, 38)]
    assert len(blocks(parts)) == 18
    assert len(blocks(parts[:24])) == 24
    assert 12 <= len(blocks(parts * 100)) <= 24
    for times in (1, 2, 3, 100):
        added_up = sum(block.requests for block in blocks(parts * times))
        assert added_up == sum(range(1, 38)) * times


def test_the_error_of_intervals_that_do_not_resemble_each_other_is_that_of_their_mean() -> None:
    parts = [tally(made(100, duration_s=s)) for s in (1.0, 4.0, 2.0, 3.0)]
    error = of_ratio(parts, lambda t: t.of("duration_s"), lambda t: t.requests)
    assert error.value == pytest.approx((5 / 3) ** 0.5 / 2 / 100)
    assert error.freedom == 3


def test_intervals_that_resemble_each_other_count_as_fewer() -> None:
    def error(seconds: List[float]) -> Error:
        parts = [tally(made(100, duration_s=s)) for s in seconds]
        return of_ratio(parts, lambda t: t.of("duration_s"), lambda t: t.requests)

    mixed, in_turn = error([1.0, 2.0] * 8), error([1.0] * 8 + [2.0] * 8)
    assert in_turn.value > 2 * mixed.value
    assert in_turn.freedom < mixed.freedom / 2


def test_a_large_difference_is_said_in_times_however_much_one_side_scatters() -> None:
    """0.85 ms against 46.9 ms; a noise in % of A would be thousands."""
    computing = {**STAGES, "app": 46_900.0}
    found = against(scattered(1, stages={**STAGES, "app": 830.0}), scattered(2, 8, computing, 0.2))
    assert re.match(r"B is 5\d times slower \(\d\d to \d\d\d?\), nearly all", found.summary)
    mean = named(found, "latency_mean")
    assert mean.ratio_low is not None and mean.ratio_high is not None and mean.ratio is not None
    assert mean.ratio_low > 10 and mean.ratio_high < 300
    assert mean.noise is not None and mean.delta is not None and mean.noise < mean.delta


def test_the_other_way_round_is_as_many_times_faster() -> None:
    slow, fast = scattered(2, stages={**STAGES, "app": 4690.0}), scattered(1)
    there, back = against(fast, slow), against(slow, fast)
    times = re.search(r"B is (.*?) times slower (\(.*?\))", there.summary)
    assert times is not None
    assert f"B is {times[1]} times faster {times[2]}" in back.summary


def test_single_windows_far_apart_are_different_though_no_interval_is_known() -> None:
    found = against([made(2000)], [made(60, {**STAGES, "app": 4000.0})])
    mean = named(found, "latency_mean")
    assert (found.different, mean.exceeds_noise, mean.ratio_low) == (True, True, None)
    assert found.summary.startswith("B is 100 times slower, nearly all of it the app: ")
    assert mean.reason is not None and "than 90 % of the other's" in mean.reason
    few = against([made(2000)], [made(15, {**STAGES, "app": 4000.0})])
    assert named(few, "latency_mean").exceeds_noise is None


def test_what_the_app_did_is_named_and_adds_up() -> None:
    slow = [doing(d, cpu=90.0, lock=10.0) for d in scattered(2, stages={**STAGES, "app": 4000.0})]
    found = against([doing(d, cpu=50.0, lock=50.0) for d in scattered(1)], slow)
    assert "slower (" in found.summary and "nearly all of it the app's CPU: " in found.summary
    app = named(found, "app")
    for side in ("a", "b", "delta", "share_of_delta_pct"):
        parts = sum(getattr(part, side) for part in found.app)
        assert parts == pytest.approx(getattr(app, side)), side


def test_waiting_for_a_cpu_explains_a_factor_and_no_more() -> None:
    crowded = scattered(2, stages={**STAGES, "app": 4000.0}, scatter=0.005, runq=0.5)
    found = against(scattered(1, scatter=0.005), crowded)
    assert named(found, "latency_mean").exceeds_noise is True
    assert "times slower" in found.summary


def test_how_long_a_run_would_tell_is_how_long_it_takes() -> None:
    a, b = scattered(1, 12, drift=0.0, scatter=0.1), scattered(5, 12, drift=0.0, scatter=0.1)
    found = named(against(a, [slower(d, 1.1) for d in b]), "latency_mean")
    assert found.exceeds_noise is False and found.tells_after_s is not None
    length = 12 + round(found.tells_after_s)
    longer = [scattered(seed, length, drift=0.0, scatter=0.1) for seed in (1, 5)]
    told = against(longer[0], [slower(d, 1.1 * 1.0) for d in longer[1]])
    assert named(told, "latency_mean").ratio_low is not None
    widths = [f.ratio_high / f.ratio for f in (found, named(told, "latency_mean"))]  # type: ignore[operator]
    assert widths[1] < widths[0]


def test_repeated_runs_say_how_many_more() -> None:
    def side(*factors: float) -> List[Run]:
        return [run([made(stages={k: v * f for k, v in STAGES.items()})]) for f in factors]

    mean = named(compare(side(0.9, 1.0, 1.1), side(1.1, 1.2, 1.3)), "latency_mean")
    assert (mean.exceeds_noise, mean.tells_after_s) == (False, None)
    assert mean.tells_after_runs is not None and 1 <= mean.tells_after_runs <= 10


def test_a_percentile_says_how_long_until_enough_requests_lie_beyond_it() -> None:
    found = named(against([made(500)], [made(500)]), "latency_p99")
    # 1,000 requests have 10 beyond p99; 500 came in 1 s.
    assert (found.exceeds_noise, found.tells_after_s) == (None, 1.0)


@pytest.mark.parametrize(
    ("freedom", "t"), [(0.5, 63.657), (1, 63.657), (9.9, 3.250), (30, 2.750), (1e9, 2.617)]
)
def test_students_t(freedom: float, t: float) -> None:
    assert student_t(freedom) == t


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("schema",), "udsprobe.listeners/1", "not a udsprobe.report/1"),
        (("host",), None, "host is null"),
        (("window", "duration_s"), "long", "not a number"),
        (("window", "duration_s"), -1, "not a possible value"),
        (("requests", "served", "count"), True, "not a number"),
        (("requests", "served", "latency_us", "mean"), 10**400, "not a possible value"),
        (("requests", "served", "latency_us"), [], "is not an object"),
        (("requests", "served", "turn_based"), "yes", "not a boolean"),
        (("listeners",), {}, "not a list"),
        (("listeners",), [1], "not a list"),
        (("host", "hostname"), 7, "not text"),
    ],
)
def test_what_is_no_report_is_refused(path: Any, value: Any, says: str) -> None:
    spoiled = made()
    holder = spoiled
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    with pytest.raises(NotAReport, match=says):
        run_of("x", [spoiled])


def test_a_missing_field_is_refused() -> None:
    spoiled = made()
    del spoiled["requests"]["served"]["stages_us"]["recv"]
    with pytest.raises(NotAReport, match=r"recv is missing"):
        run_of("x", [spoiled])


def test_nothing_is_no_run() -> None:
    with pytest.raises(NotAReport, match="empty"):
        run_of("x", [])
