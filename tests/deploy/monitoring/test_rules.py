"""Rules are made of series that exist, say what they need and what to do, and each alert has unit tests."""

import re
from functools import cache
from typing import Any

import pytest
import yaml

from driver.process.metrics.table import TABLE
from tests.deploy.monitoring.rule_files import (
    CASES,
    MONITORING,
    OF_OTHERS,
    OF_PROMETHEUS,
    ROOT,
    alerts,
    known_series,
    needs,
    records,
    rules,
    series_in,
)
from tests.gpus import taints
from tests.tools.docs.site.test_repository_links import anchors

ALERT = re.compile(r'alertname="(\w+)"')


@pytest.mark.parametrize(
    ("expression", "series"),
    [
        ('sum by (a, b) (up{x="up_down"}) > 0', {"up"}),
        (
            'increase(x_total{reason=~"a|b"}[10m]) / on (node) group_left (form) y:z:sum',
            {"x_total", "y:z:sum"},
        ),
        ("a and on (b) c unless d or vector(0)", {"a", "c", "d"}),
        ("histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", {"x_bucket"}),
    ],
)
def test_the_series_of_an_expression_are_found(expression: str, series: set[str]) -> None:
    assert series_in(expression) == series


def test_every_series_that_a_rule_asks_for_exists() -> None:
    unknown = {
        rule.get("alert") or rule["record"]: sorted(series_in(rule["expr"]) - known_series())
        for rule in rules()
    }
    assert {name: series for name, series in unknown.items() if series} == {}


def test_rules_match_labels_that_the_series_have() -> None:
    labels = {one.name: {*one.labels, "cluster", "node"} for one in TABLE.rows}
    wrong = [
        (rule.get("alert") or rule["record"], name, label)
        for rule in rules()
        for name, matched in re.findall(r"\b(gpu_dra_\w+)\{([^}]*)\}", rule["expr"])
        for label in re.findall(r"(\w+)\s*(?:=|!=|=~)\s*\"", matched)
        if label not in labels[name]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_it_means_what_to_do_and_where_to_read_on(name: str) -> None:
    rule = alerts()[name]
    said = rule["annotations"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    for part in ("summary", "description", "action"):
        assert said[part].endswith("."), part
        assert len(said[part]) > 20
    page, _, anchor = said["runbook_url"].partition("#")
    assert anchor in anchors((ROOT / page).read_text())
    assert anchor == name.lower()


@pytest.mark.parametrize("name", alerts())
def test_an_alert_names_the_exporters_that_it_needs(name: str) -> None:
    rule = alerts()[name]
    said = set(filter(None, rule["annotations"].get("needs", "").split(", ")))
    assert said == needs(series_in(rule["expr"]))


@pytest.mark.parametrize("name", alerts())
def test_words_of_an_alert_use_labels_that_its_expression_leaves(name: str) -> None:
    rule = alerts()[name]
    used = {label for text in rule["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}
    made = [rule["expr"], *(records()[name]["expr"] for name in series_in(rule["expr"]) & records().keys())]
    left = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", " ".join(made)))))
    left |= {"job", "instance"} if "up" in series_in(rule["expr"]) else set()
    assert used <= left


def test_every_taint_of_a_sick_gpu_has_an_alert() -> None:
    keys = {value for name, value in vars(taints).items() if name.startswith("TAINT_")}
    of_no_gpu = {taints.TAINT_CHANGING, taints.TAINT_BLOCKED, taints.TAINT_DEVICE_PLUGIN}
    told = {key for rule in alerts().values() for key in re.findall(r'gpu_sick\{key="([^"]+)"', rule["expr"])}

    assert told == keys - of_no_gpu


@cache
def cases() -> dict[str, list[tuple[bool, str]]]:
    """By alert: whether it fires in each of its unit tests' expectations, in order, and in which file."""
    found: dict[str, list[tuple[bool, str]]] = {}
    for file in CASES:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for asked in test["promql_expr_test"]:
                for name in ALERT.findall(asked["expr"]):
                    found.setdefault(name, []).append((bool(asked["exp_samples"]), file.name))
    return found


@pytest.mark.parametrize("name", alerts())
def test_an_alert_has_unit_tests_in_which_it_is_quiet_fires_and_clears(name: str) -> None:
    fires = [one for one, _ in cases()[name]]
    assert fires[0] is False
    assert True in fires
    assert fires[-1] is False


def test_unit_tests_are_about_alerts_that_exist() -> None:
    assert cases().keys() == alerts().keys()


def test_the_page_names_every_recorded_series_and_every_exporter() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert [name for name in records() if f"`{name}`" not in page] == []
    assert [name for name in set(OF_OTHERS.values()) if name not in page] == []


def test_the_prometheus_of_the_rules_is_told_of_all_files() -> None:
    used: set[Any] = {
        (file.parent / name).resolve()
        for file in CASES
        for name in yaml.safe_load(file.read_text())["rule_files"]
    }
    assert used == set((MONITORING / "rules").glob("*.yaml"))
    assert OF_PROMETHEUS.isdisjoint(OF_OTHERS)
