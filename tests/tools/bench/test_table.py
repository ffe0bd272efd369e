"""The table compares round by round, shows the spread, and says which limit is not met."""

from __future__ import annotations

import pytest

from tools.bench.table import Row, Spread, exit_status, lines


def test_a_ratio_compares_rounds_one_by_one_so_that_a_slow_while_changes_nothing() -> None:
    floor = [1.0, 1.0, 8.0, 1.0, 1.0]
    ours = [1.5, 1.5, 12.0, 1.5, 1.5]

    assert Spread.of_ratios(ours, floor) == Spread(1.5, 1.5, 1.5)


def test_a_ratio_needs_the_same_rounds_on_both_sides() -> None:
    with pytest.raises(ValueError, match="zip"):
        Spread.of_ratios([1.0, 2.0], [1.0])


def test_a_spread_leaves_out_the_lowest_and_the_highest_tenth() -> None:
    assert Spread.of([float(value) for value in range(11)]) == Spread(5.0, 1.0, 9.0)
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)


def test_a_limit_is_on_the_median_and_one_that_is_not_met_fails_the_run() -> None:
    met = Row("prepare", Spread(1.2, 1.0, 2.0), 1.25)
    broken = Row("unprepare", Spread(1.6, 1.0, 2.0), 1.5)
    free = Row("again", Spread(9.0, 9.0, 9.0), None)

    assert [row.holds for row in (met, broken, free)] == [True, False, True]
    assert (exit_status([met, free]), exit_status([met, broken])) == (0, 1)


def test_ratios_are_bare_numbers_and_what_has_no_floor_keeps_its_unit() -> None:
    table = [
        Row("prepare", Spread(1.2, 1.0, 2.0), 1.25),
        Row("memory", Spread(80.0, 80.0, 80.0), 75.0, "MiB"),
        Row("many", Spread(1.4, 1.3, 1.5), None),
    ]

    assert lines(table, "times the floor") == [
        "| what    | times the floor | 10th to 90th percentile | limit  | met |",
        "|---------|-----------------|-------------------------|--------|-----|",
        "| prepare | 1.20            | 1.00 to 2.00            | 1.25   | yes |",
        "| memory  | 80.00 MiB       |                         | 75 MiB | NO  |",
        "| many    | 1.40            | 1.30 to 1.50            |        |     |",
    ]
