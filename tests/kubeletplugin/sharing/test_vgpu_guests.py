"""In a vGPU guest nothing is tried that only the host may do, and what is offered there can be prepared."""

from pathlib import Path

import pytest

from fakegpu.nvml.sharing_calls import SHARING_CHANGES
from tests.driver.mig_machines import look
from tests.gpus import MIG_CHANGES, ClaimBlocked, node_offers, parse_config
from tests.kubeletplugin.fake_node import FakeNode
from tools.conformance.nodes.shares_area import SHARING_SAMPLES

OF_THE_HOST = sorted(MIG_CHANGES | SHARING_CHANGES)
"""The calls that change a GPU: MIG mode and instances, compute modes, time-slices."""


@pytest.fixture(params=["a100-vgpu-guest", "l40s-vgpu-unlicensed"])
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> FakeNode:
    """A node that is a virtual machine, on which each change of a GPU is a fault."""
    node = FakeNode(tmp_path, request.param)
    for call in OF_THE_HOST:
        node.machine.fail(call)
    node.time_slices.failures = [ClaimBlocked("nvidia-smi was called", "do not")]
    return node


@pytest.mark.parametrize("path", SHARING_SAMPLES, ids=lambda path: path.stem)
def test_what_the_samples_offer_of_a_guest_can_be_prepared(guest: FakeNode, path: Path) -> None:
    offered = node_offers(look(guest.machine), parse_config(path.read_text(), path.name))

    assert offered.devices
    for number, device in enumerate(offered.devices):
        name = f"pod-{number}"
        consumed = {measure: str(policy.default) for measure, policy in device.policies.items()}
        if consumed:
            ref = guest.claim_shares(name, device.name, consumed=consumed)
        else:
            ref = guest.claim_devices(name, device.name)
        assert len(guest.prepare(ref)) == 1, device.name
        guest.unprepare(ref)
    guest.sharing_reconciler.run_once()
    assert (guest.notes, len(guest.time_slices.failures)) == ([], 1), "nobody asked nvidia-smi"
    guest.stop()
