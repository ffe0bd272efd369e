"""What the node's slices say of a device is remembered, also while a kubelet restart wiped them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from driver.process.metrics.table import TABLE
from kubeletplugin.reports.memory_watch import MEMORY_SERIES
from kubeletplugin.reports.published import PublishedDevices


def slice_with(**uuids: str) -> dict[str, Any]:
    devices = [{"name": name, "attributes": {"uuid": {"string": uuid}}} for name, uuid in uuids.items()]
    return {"spec": {"devices": devices}}


def test_the_last_published_uuid_counts() -> None:
    published = PublishedDevices()
    assert published.uuid_of("a") is None

    published.take("ADDED", slice_with(a="GPU-1", b="GPU-2"))
    published.take("MODIFIED", slice_with(a="GPU-3"))

    assert (published.uuid_of("a"), published.uuid_of("b")) == ("GPU-3", "GPU-2")


def test_a_wiped_slice_is_not_forgotten() -> None:
    published = PublishedDevices()
    published.take("ADDED", slice_with(a="GPU-1"))
    published.take("DELETED", slice_with(a="GPU-1"))

    assert published.uuid_of("a") == "GPU-1"


def test_slices_of_another_form_are_passed_over() -> None:
    published = PublishedDevices()
    odd_ones: tuple[dict[str, Any], ...] = (
        {},
        {"spec": {}},
        {"spec": {"devices": None}},
        {"spec": {"devices": [{"name": "a"}]}},
    )
    for odd in odd_ones:
        published.take("ADDED", odd)
    published.take("ADDED", {"spec": {"devices": [{"name": "a", "attributes": {"uuid": {"int": 3}}}]}})

    assert published.uuid_of("a") is None


def test_a_partition_is_known_by_its_gpu() -> None:
    published = PublishedDevices()
    attributes = {"uuid": {"string": "MIG-1"}, "parentUUID": {"string": "GPU-1"}}
    published.take("ADDED", {"spec": {"devices": [{"name": "part", "attributes": attributes}]}})

    assert published.uuid_of("part") == "GPU-1"


def capacity(**amounts: Any) -> dict[str, Any]:
    devices = [{"name": name, "capacity": {"memory": amount}} for name, amount in amounts.items()]
    return {"spec": {"devices": devices}}


def test_the_last_published_memory_counts() -> None:
    published = PublishedDevices()
    assert published.memory_of("a") is None

    published.take("ADDED", capacity(a={"value": "80Gi"}, b={"value": "81559Mi"}))
    published.take("MODIFIED", capacity(a={"value": "79Gi"}))
    published.take("DELETED", capacity(a={"value": "79Gi"}))

    assert (published.memory_of("a"), published.memory_of("b")) == (79 << 30, 81559 << 20)


def test_memory_of_another_form_is_passed_over() -> None:
    published = PublishedDevices()
    odd_ones: tuple[Any, ...] = ({}, {"value": None}, {"value": "much"}, {"value": []}, None, [], "80Gi")
    for odd in odd_ones:
        published.take("ADDED", capacity(a=odd))
    published.take("ADDED", {"spec": {"devices": [{"name": "a", "capacity": None}]}})

    assert published.memory_of("a") is None


GPU = "gpu-0000-8a-00-0"
RESTART = (("xid", "79"), ("needs-reboot", "xid-79"))


def tainted(*taints: tuple[str, str], name: str = "one") -> dict[str, Any]:
    """A slice with one GPU that has these taints."""
    told = [{"key": f"gpu.nvidia.com/{key}", "value": value, "effect": "NoSchedule"} for key, value in taints]
    return {"metadata": {"name": name}, "spec": {"devices": [{"name": GPU, "taints": told}]}}


@pytest.mark.parametrize(
    ("taints", "word", "reason"),
    [
        ([("xid", "95"), ("needs-reset", "xid-95")], "Unhealthy", "Xid"),
        ([("needs-reset", "event")], "Unhealthy", "NeedsReset"),
        ([("xid", "94")], "Healthy", "Xid"),
        ([("xid", "95")], "Healthy", "Xid"),
        ([("gpu-lost", "nvmlDeviceGetUUID"), ("changing", "")], "Healthy", ""),
    ],
    ids=["reset", "no-xid", "contained", "contained-by-the-admin", "nothing-told"],
)
def test_the_health_of_a_device_follows_from_the_faults_that_its_taints_tell(
    taints: list[tuple[str, str]], word: str, reason: str
) -> None:
    published = PublishedDevices()
    published.take("ADDED", tainted(*taints))
    assert (published.health_of(GPU).word, published.health_of(GPU).reason) == (word, reason)
    assert published.health_of("gpu-0000-8b-00-0").word == "Healthy"


def test_whoever_waits_for_it_hears_when_faults_come_and_go() -> None:
    published, heard = PublishedDevices(), list[str]()
    published.on_fault(lambda: heard.append(published.health_of(GPU).word))
    for taints in ((), RESTART, RESTART, ()):
        published.take("MODIFIED", tainted(*taints))
    assert heard == ["Unhealthy", "Healthy"]


def test_a_fault_outlives_a_kubelet_that_wipes_the_slices_until_they_are_written_anew() -> None:
    published = PublishedDevices()
    published.take("ADDED", tainted(*RESTART))
    published.take("DELETED", tainted(*RESTART))
    assert published.health_of(GPU).word == "Unhealthy"
    published.take("ADDED", {"metadata": {"name": "two"}, "spec": {"devices": [{"name": "another"}]}})
    assert published.health_of(GPU).word == "Unhealthy", "its slice is not back yet"
    published.take("ADDED", tainted(name="three"))
    assert published.health_of(GPU).word == "Healthy"


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sharing.md").read_text()


def labels() -> dict[str, set[str]]:
    """The labels of each series of which the page may speak."""
    return {
        one.name: set(one.labels)
        for one in TABLE.rows
        if one.name in MEMORY_SERIES
        or one.name in ("gpu_dra_gpu_memory_allocated_bytes", "gpu_dra_gpu_memory_used_bytes")
    }


def test_the_page_lists_the_series_with_their_labels() -> None:
    rows = re.findall(r"^\| `(gpu_dra_[a-z_]+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    told: dict[str, set[str]] = {}
    before: set[str] = set()
    for name, words in rows:
        own = set(re.findall(r"`([a-z_]+)`", words))
        before = before | own if words.startswith("the same") else own
        told[name] = before

    assert told == labels()
