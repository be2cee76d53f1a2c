"""What pairs of runs tell in the examples: a difference, none, or that there are too few."""

from __future__ import annotations

import math
import random

import pytest

from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval, typical

TCP = [100.0, 140.0, 90.0, 200.0, 110.0, 95.0, 160.0]


def test_each_side_is_first_as_often_as_the_other() -> None:
    assert ["".join(order) for order in in_turns("AB", 4)] == ["AB", "BA", "AB", "BA"]


def test_a_machine_that_slows_down_both_hides_nothing() -> None:
    """Runs of one side differ by a factor of two; each pair has the same ratio, nearly."""
    unix = [one * ratio for one, ratio in zip(TCP, (0.87, 0.88, 0.86, 0.87, 0.89, 0.87, 0.86))]
    figure = paired(TCP, unix)
    assert figure.exceeds_noise
    assert said(figure, "Unix") == "Unix is 13 % faster (11 to 14)"


def test_the_slower_side_is_called_slower() -> None:
    assert (
        said(paired(TCP, [3 * one for one in TCP]), "Unix")
        == "Unix is 3.0 times slower (3.0 to 3.0)"
    )


def test_pairs_that_contradict_each_other_tell_no_difference() -> None:
    """Five of seven are faster by a fifth, two are slower: a mean would have said 10 % faster."""
    unix = [one * ratio for one, ratio in zip(TCP, (0.8, 0.8, 0.8, 0.8, 0.8, 1.3, 1.2))]
    figure = paired(TCP, unix)
    assert figure.exceeds_noise is False
    assert "no difference can be shown yet" in said(figure, "Unix")
    assert "more runs of each would tell" in said(figure, "Unix")


def test_no_difference_says_what_is_not_excluded() -> None:
    unix = [one * ratio for one, ratio in zip(TCP, (1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99))]
    expected = "no difference beyond the noise: 2 % faster to 2 % slower cannot be excluded"
    assert said(paired(TCP, unix), "Unix") == expected


def test_an_interval_without_use_has_no_figures() -> None:
    unix = [one * ratio for one, ratio in zip(TCP, (0.01, 90.0, 0.02, 40.0, 1.0, 60.0, 0.03))]
    told = said(paired(TCP, unix), "Unix")
    assert "the measurements of one side differ too much among themselves" in told
    assert "faster" not in told and "slower" not in told


def test_few_pairs_are_not_judged() -> None:
    figure = paired([100.0, 90.0, 110.0], [50.0, 45.0, 55.0])
    assert figure.exceeds_noise is None
    assert said(figure, "Unix") == "not judged: it takes 4 pairs of runs"
    assert paired([100.0] * 4, [50.0] * 4).exceeds_noise


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0])])
def test_runs_without_a_partner_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="pairs of"):
        paired(a, b)


def test_the_interval_holds_the_ratio_as_often_as_it_says() -> None:
    """Seven pairs of a known ratio on a machine that drifts: 99 of 100 intervals hold it."""
    chance, held = random.Random(19), 0
    for _ in range(1000):
        slow = [chance.lognormvariate(0, 0.4) for _ in range(7)]
        tcp = [100 * each * chance.lognormvariate(0, 0.05) for each in slow]
        unix = [87 * each * chance.lognormvariate(0, 0.05) for each in slow]
        figure = paired(tcp, unix)
        assert figure.ratio_low is not None and figure.ratio_high is not None
        held += figure.ratio_low <= 0.87 <= figure.ratio_high
    assert 975 <= held < 1000


def test_the_quotient_of_the_tables_figures_is_the_ratio_that_is_judged() -> None:
    unix = [one * ratio for one, ratio in zip(TCP, (0.8, 0.9, 0.7, 0.8, 0.6, 0.8, 0.9))]
    figure = paired(TCP, unix)
    assert figure.ratio is not None
    assert math.isclose(figure.ratio, typical(unix) / typical(TCP))


def test_a_table_gives_the_interval_of_the_runs_and_none_of_few() -> None:
    assert interval([100.0, 120.0, 90.0]) == "103"
    assert interval([100.0] * 4) == "100 (100–100)"
    # t is 5.841 with 3 degrees of freedom, times a standard error of ln 2 / √12.
    assert interval([50.0, 50.0, 100.0, 100.0]) == "70.7 (22.0–228)"
