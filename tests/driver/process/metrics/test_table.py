"""The table has every series once, named as Prometheus wants it."""

import re
from collections import Counter

import pytest

from driver.process.metrics.registry import Metrics
from driver.process.metrics.table import TABLE, Series

ROWS = pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)


def test_every_series_has_one_row() -> None:
    assert [name for name, count in Counter(row.name for row in TABLE.rows).items() if count > 1] == []


@ROWS
def test_names_and_labels_are_those_of_prometheus_and_end_in_their_unit(row: Series) -> None:
    assert re.fullmatch(r"(gpu|nvidia)_dra_[a-z_]+", row.name)
    assert all(re.fullmatch(r"[a-z_]+", label) for label in row.labels)
    assert len(set(row.labels)) == len(row.labels)
    assert (row.kind == "counter") == row.name.endswith("_total")
    assert (row.kind == "histogram") == bool(row.buckets)
    assert list(row.buckets) == sorted(row.buckets)
    assert row.help.endswith(".")
    assert row.bound
    assert row.unit


def test_histograms_of_the_driver_begin_at_half_a_millisecond() -> None:
    own = [row for row in TABLE.rows if row.kind == "histogram" and row.name.startswith("gpu_dra_")]
    assert {row.buckets[0] for row in own} == {0.0005}


@pytest.mark.parametrize("process", ["kubeletplugin", "controller"])
def test_a_process_makes_no_series_of_another(process: str) -> None:
    metrics = Metrics(process)  # type: ignore[arg-type]  # pytest gives plain text
    made = {family.name for family in metrics.registry.collect()}
    allowed = {row.name.removesuffix("_total") for row in TABLE.rows if process in row.processes}
    assert made <= allowed
    assert made
