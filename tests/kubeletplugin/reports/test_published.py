"""What the node's slices say of a device is remembered, also while a kubelet restart wiped them."""

import re
from pathlib import Path
from typing import Any

import pytest

from driver.process.metrics.table import TABLE
from kubeletplugin.reports.memory_watch import MEMORY_SERIES
from tests.clusters import Object
from tests.plugin import PublishedDevices


def one_slice(name: str, **told: Any) -> Object:
    return {"spec": {"devices": [{"name": name, **told}]}}


def known(uuid: str, memory: str, **more: Any) -> Object:
    attributes = {"uuid": {"string": uuid}, **more}
    return {"attributes": attributes, "capacity": {"memory": {"value": memory}}}


def test_the_last_published_uuid_and_memory_count_though_a_kubelet_wipes_the_slice() -> None:
    published = PublishedDevices()
    assert (published.uuid_of("a"), published.memory_of("a")) == (None, None)
    published.take("ADDED", one_slice("b", **known("GPU-2", "81559Mi")))
    published.take("ADDED", one_slice("part", **known("MIG-1", "10Gi", parentUUID={"string": "GPU-1"})))
    published.take("ADDED", one_slice("a", **known("GPU-1", "80Gi")))
    for event in ("MODIFIED", "DELETED"):
        published.take(event, one_slice("a", **known("GPU-3", "79Gi")))

    assert [published.uuid_of(name) for name in ("a", "b", "part")] == ["GPU-3", "GPU-2", "GPU-1"]
    assert (published.memory_of("a"), published.memory_of("b")) == (79 << 30, 81559 << 20)


def test_slices_of_another_form_are_passed_over() -> None:
    published = PublishedDevices()
    amounts: tuple[Any, ...] = ({}, {"value": None}, {"value": "much"}, {"value": []}, None, [], "80Gi")
    odd_ones: tuple[Object, ...] = (
        {},
        {"spec": {"devices": None}},
        one_slice("a", attributes={"uuid": {"int": 3}}, capacity=None),
        *(one_slice("a", capacity={"memory": amount}) for amount in amounts),
    )
    for odd in odd_ones:
        published.take("ADDED", odd)
    assert (published.uuid_of("a"), published.memory_of("a")) == (None, None)


GPU = "gpu-0000-8a-00-0"
RESTART = (("xid", "79"), ("needs-reboot", "xid-79"))


def tainted(*taints: tuple[str, str], name: str = "one") -> Object:
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
