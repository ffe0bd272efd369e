"""The samples for vGPUs are valid, and get what they say on hosts; on other nodes they wait."""

from __future__ import annotations

import pytest

from tests.deviceclasses.published_nodes import devices, plan
from tests.deviceclasses.sample_claims import results
from tests.deviceclasses.shipped_classes import ROOT

FILES = {file.stem: file for file in sorted((ROOT / "deploy" / "examples" / "vgpu").glob("*.yaml"))}
HOSTS = (ROOT / "deploy" / "examples" / "node-config" / "vgpu-host.yaml").read_text()
OWN = {"by-profile", "by-memory", "iommufd"}
GIVEN = {
    ("by-profile", "vgpu-host-l40s"): "L40S-8Q",
    ("by-profile", "vgpu-host-a100-mdev"): None,
    ("by-memory", "vgpu-host-l40s"): None,
    ("by-memory", "vgpu-host-a100-mdev"): "A100-10C",
    ("by-memory", "vgpu-and-passthrough"): "A30-12C",
    ("iommufd", "vgpu-host-l40s"): "L40S-8Q",
}


@pytest.mark.parametrize(("sample", "machine"), GIVEN)
def test_a_sample_gets_what_it_says_on_a_host(sample: str, machine: str) -> None:
    planned = plan(machine, HOSTS)
    by_name = {device["name"]: device["attributes"]["profile"]["string"] for device in devices(planned)}
    given = [by_name[one["device"]] for found in results(FILES[sample], planned) for one in found]

    assert given == ([] if GIVEN[sample, machine] is None else [GIVEN[sample, machine]])


@pytest.mark.parametrize("sample", sorted(OWN))
def test_a_node_for_containers_has_no_vgpus(sample: str) -> None:
    assert results(FILES[sample], plan("l40s-octo", HOSTS)) == []


def test_a_host_offers_nothing_to_containers_whatever_the_rules_say() -> None:
    for machine in ("vgpu-host-l40s", "vgpu-host-a100-mdev"):
        for rules in (None, "version: v1\nrules: [{offer: whole, mig: dynamic}]\n"):
            assert devices(plan(machine, rules)) == []
