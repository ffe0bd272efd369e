"""The samples for vGPUs are valid, and get what they say on hosts."""

import pytest

from tests.deviceclasses.published_nodes import devices, plan
from tests.deviceclasses.sample_claims import results
from tests.deviceclasses.shipped_classes import ROOT

FILES = {file.stem: file for file in sorted((ROOT / "deploy" / "examples" / "vgpu").glob("*.yaml"))}
HOSTS = (ROOT / "deploy" / "examples" / "node-config" / "vgpu-host.yaml").read_text()
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
