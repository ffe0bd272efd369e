"""The rules for Prometheus on the page of used memory speak of series and labels that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from driver.process.metrics import MemoryFigures, Metrics
from kubeletplugin.reports.memory_uses import memory_uses
from tests.kubeletplugin.held import era, held_kinds
from tests.kubeletplugin.reports.memory_claims import GIB, claim, container

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "used-memory.md").read_text()
SERIES = re.compile(r"gpu_dra_[a-z_]+")
RECORDED = re.compile(r"gpu_dra:[a-z_:]+")


def labels() -> dict[str, set[str]]:
    """The labels of each series of memory, as the plugin serves them."""
    figures = memory_uses([claim("a")], era(), held_kinds(), lambda: (container("a", GIB),))
    assert figures != MemoryFigures()
    metrics = Metrics()
    metrics.show_memory(lambda: figures)
    families = (one for one in metrics.registry.collect() if "_memory_" in one.name)
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def rules() -> list[dict[str, Any]]:
    (block,) = re.findall(r"```yaml\n(groups:.*?)```", PAGE, re.DOTALL)
    return [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]


def test_the_page_lists_the_series_with_their_labels() -> None:
    rows = re.findall(r"^\| `(gpu_dra_[a-z_]+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    told: dict[str, set[str]] = {}
    before: set[str] = set()
    for name, words in rows:
        own = set(re.findall(r"`([a-z_]+)`", words))
        before = before | own if words.startswith("the same") else own
        told[name] = before

    assert told == labels()


def test_every_series_in_a_rule_is_served_or_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}

    for rule in rules():
        assert set(SERIES.findall(rule["expr"])) <= labels().keys(), rule
        assert set(RECORDED.findall(rule["expr"])) <= recorded, rule
    assert {rule["alert"] for rule in rules() if "alert" in rule} == {
        *("GpuMemoryNearlyUsedUp", "GpuMemoryHardlyUsed", "GpuMemoryNotKnown"),
    }


def test_every_label_in_a_rule_is_one_of_its_series() -> None:
    of_claim = labels()["gpu_dra_claim_memory_used_bytes"]

    for rule in rules():
        joined = re.findall(r"on \(([^)]*)\)", rule["expr"])
        shown = re.findall(r"\$labels\.([a-z_]+)", str(rule.get("annotations")))
        assert {*shown, *(label.strip() for words in joined for label in words.split(","))} <= of_claim
