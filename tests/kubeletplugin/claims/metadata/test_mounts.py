"""Where a container finds the file of a request, whatever the claim's annotation says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.metadata import metadata_mounts, possible_requests

FOLDER = Path("/plugins/gpu.nvidia.com/metadata")
BASE = "/var/run/kubernetes.io/dra-device-attributes"


def held(request: str, name: str) -> HeldDevice:
    return HeldDevice(request, "p", name, "0000:01:00.0", "GPU-1", f"u-{name}", kind="whole")


def entry(*devices: HeldDevice, pod_claim_name: str = "") -> Entry:
    return Entry("u", "team", "train", "prepared", 1, devices, pod_claim_name=pod_claim_name)


def paths(claim: Entry) -> dict[str, str]:
    return {name: mount.container_path for name, mount in metadata_mounts(claim, FOLDER).items()}


def test_a_claim_that_the_pod_names_lies_under_its_own_name_and_one_of_a_template_under_the_pods() -> None:
    assert paths(entry(held("gpu", "a"))) == {
        "u-a": f"{BASE}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json"
    }
    assert paths(entry(held("gpu", "a"), pod_claim_name="gpus")) == {
        "u-a": f"{BASE}/resourceclaimtemplates/gpus/gpu/gpu.nvidia.com-metadata.json"
    }


def test_each_request_has_one_file_which_its_first_device_brings_read_only() -> None:
    found = metadata_mounts(entry(held("a/sub", "1"), held("b", "2"), held("a/sub", "3")), FOLDER)

    assert {name: mount.host_path for name, mount in found.items()} == {
        "u-1": f"{FOLDER}/u_a.json",
        "u-2": f"{FOLDER}/u_b.json",
    }
    assert not any(mount.is_writable for mount in found.values())


@pytest.mark.parametrize("name", ["../../../../etc", "a/b", "A", "-a", "a" * 64, "a\n", "ä"])
def test_an_annotation_that_can_be_no_name_in_a_pod_leads_nowhere_else(name: str) -> None:
    assert paths(entry(held("gpu", "a"), pod_claim_name=name)) == {
        "u-a": f"{BASE}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json"
    }


@pytest.mark.parametrize("request_name", ["", "..", "../x", "a\n", "Gpu"])
def test_a_request_that_is_no_label_has_no_file(request_name: str) -> None:
    claim = entry(held(request_name, "a"))
    assert (paths(claim), possible_requests(claim)) == ({}, frozenset())


@pytest.mark.parametrize(
    "claim",
    [
        replace(entry(held("gpu", "a")), name=""),
        entry(replace(held("gpu", "a"), published_as="gpu-0")),
    ],
    ids=["of no known name", "of another driver"],
)
def test_a_claim_of_which_too_little_is_known_has_no_files_but_may_have_had_some(claim: Entry) -> None:
    assert paths(claim) == {}
    assert possible_requests(claim) == {"gpu"}
