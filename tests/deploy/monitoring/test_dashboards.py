"""Dashboards ask for series that exist, and say what each panel shows."""

import re

import pytest

from driver.process.metrics.table import TABLE
from tests.deploy.monitoring.rule_files import boards, expressions, known_series, needs, panels, series_in

BOARDS = boards()

pytestmark = pytest.mark.parametrize("uid", BOARDS)


def test_every_series_that_a_panel_asks_for_exists(uid: str) -> None:
    asked = {name for expression in expressions(BOARDS[uid]) for name in series_in(expression)}

    assert asked - known_series() == set()


def test_every_panel_says_what_it_shows_and_which_exporters_it_needs(uid: str) -> None:
    for panel in panels(BOARDS[uid]):
        assert len(panel["description"]) > 10, panel["title"]
        asked = {name for target in panel["targets"] for name in series_in(target["expr"])}
        for exporter in needs(asked):
            assert exporter in panel["description"], panel["title"]


def test_every_panel_asks_the_chosen_source_for_the_chosen_cluster(uid: str) -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(BOARDS[uid]):
        assert panel["datasource"] == source
        for target in panel["targets"]:
            assert target["datasource"] == source
            assert 'cluster=~"$cluster"' in target["expr"] or target["expr"].startswith("ALERTS"), target[
                "expr"
            ]


def test_panels_do_not_lie_on_each_other_and_fill_no_more_than_the_width(uid: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[uid]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells.isdisjoint(taken), panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_variables_take_the_values_of_labels_that_series_have(uid: str) -> None:
    source, *chosen = BOARDS[uid]["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    for variable in chosen:
        if variable["type"] == "textbox":
            continue
        series, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr] # none fails
        assert label in {*TABLE[series].labels, "cluster", "node"}
        assert variable["allValue"] == ".*", "a Prometheus without the label is asked as well"
