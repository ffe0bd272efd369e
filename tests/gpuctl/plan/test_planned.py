"""What a node would publish under the samples is valid on every machine, and says what it lacks."""

import json
import re
from pathlib import Path

import pytest
import yaml

from driver.kinds.registry import KINDS
from tests.clusters import PlannedNode, dynamic_resources, errors_of, plan_inventory, plan_node
from tests.driver.mig_machines import AMPERE
from tests.examples import is_long
from tests.fakegpu.guests import VGPU_GUESTS
from tests.gpuctl.plan.printed import printed
from tests.gpus import FakeMachine, instance_types, known_machines, load_config, load_machine
from tools.conformance.nodes.mig_nodes import VGPU_HOSTS

SAMPLES = sorted((Path(__file__).resolve().parents[3] / "deploy" / "examples" / "node-config").glob("*.yaml"))


NOTHING_OFFERED = {
    *((machine, "mig-layouts") for machine in AMPERE),
    *((machine, "passthrough") for machine in VGPU_GUESTS),
    *((machine, path.stem) for machine in VGPU_HOSTS for path in SAMPLES if path.stem != "vgpu-host"),
} - {("vgpu-and-passthrough", "all-kinds"), ("vgpu-and-passthrough", "passthrough")}
"""MIG mode is off there, changes only with a reset, and the sample offers nothing whole; a vGPU cannot be
handed on; a host of vGPUs has nothing for containers."""

ADDRESS_OR_UUID = re.compile(r"[0-9a-f]{4}([:-])[0-9a-f]{2}\1|[0-9a-f]{8}-[0-9a-f]{4}-", re.IGNORECASE)


@pytest.mark.parametrize("machine", known_machines())
def test_every_sample_gives_valid_slices_on_every_machine(machine: str, tmp_path: Path) -> None:
    gpus = set(map(str, FakeMachine.open(f"{machine}@{tmp_path / 'state.json'}").state.listed()))
    inventory = plan_node(machine, "node-a", None).inventory
    for sample in SAMPLES:
        planned = plan_inventory(inventory, "node-a", load_config(sample))
        _check(planned, gpus, offers_nothing=(machine, sample.stem) in NOTHING_OFFERED)


@pytest.mark.parametrize("name", instance_types())
def test_an_instance_type_publishes_valid_slices_under_the_samples(name: str) -> None:
    machine = load_machine(name)
    inventory = plan_node(name, "node-a", None).inventory
    product = machine.product
    nothing = {"passthrough"} | ({"mig-layouts"} if product.mig and product.mig_needs_reset else set())
    # The first two offer a GPU in every form.
    for sample in SAMPLES if is_long() else SAMPLES[:2]:
        planned = plan_inventory(inventory, "node-a", load_config(sample))
        _check(planned, {str(slot.pci) for slot in machine.slots}, offers_nothing=sample.stem in nothing)


def _check(planned: PlannedNode, gpus: set[str], *, offers_nothing: bool) -> None:
    assert [error for one in planned.slices for error in errors_of(one)] == []
    pools = [one["spec"]["pool"] for one in planned.slices]
    assert {pool["resourceSliceCount"] for pool in pools} == {len(planned.slices)}
    assert all(len(one["spec"].get("devices", ())) <= 64 for one in planned.slices)
    assert all(len(one["spec"].get("sharedCounters", ())) <= 8 for one in planned.slices)
    names = [device["name"] for one in planned.slices for device in one["spec"].get("devices", ())]
    assert (not names) == offers_nothing
    offered = {gpu for name in map(KINDS.parse, names) if name for gpu in name.gpus}
    held_back = {what.split()[0] for what in planned.withheld}
    assert offered | held_back == gpus, "no GPU is forgotten"
    templates = dynamic_resources(planned.slices)["ResourceSliceTemplates"]
    told = json.dumps([device["Attributes"] for one in templates for device in one.get("Devices", ())])
    assert ADDRESS_OR_UUID.search(told) is None, "Karpenter is told nothing that another node has otherwise"


def test_scripts_get_a_list_for_kubectl_as_json_and_as_yaml() -> None:
    command = ("plan", "--machine", "a30-quad", "-o")
    as_json, as_yaml = (printed(*command, form).partition("\n")[2] for form in ("json", "yaml"))

    planned = json.loads(as_json)
    assert planned == yaml.safe_load(as_yaml)
    assert (planned["kind"], planned["items"]) == ("List", [*plan_node("a30-quad", "node", None).slices])
