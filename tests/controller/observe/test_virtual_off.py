"""Which GPUs are to get virtual functions follows from the rules, the look and what claims have."""

from pathlib import Path

import pytest

from tests.controller.observed import Observed
from tests.gpus import FakeMachine, Guard, NodeState, PciAddress, build_sysfs
from tests.vgpu_hosts import with_virtual_off
from tools.conformance.nodes.mig_nodes import one_rule

FIRST, SECOND = (PciAddress.parse(text) for text in ("0000:17:00.0", "0000:b1:00.0"))
WORD = one_rule("vgpu: {profiles: [L40S-8Q], virtualFunctions: enabled}")


class Host(Observed):
    """A host whose virtual functions are off, and what the observer said of them, last."""

    def __init__(self, folder: Path, guard: Guard) -> None:
        machine = str(with_virtual_off(folder, "vgpu-host-l40s"))
        self.wanted: list[frozenset[PciAddress]] = []
        sysfs = build_sysfs(folder, FakeMachine.open(machine))
        super().__init__(guard, machine, None, sysfs, on_virtual_off=self.wanted.append)
        self.rules = WORD


@pytest.fixture
def host(tmp_path: Path, guard: Guard) -> Host:
    return Host(tmp_path, guard)


def test_they_are_told_once_it_is_known_what_claims_hold_and_without_the_gpu_of_a_claim(host: Host) -> None:
    host.check()
    assert host.wanted == []
    host.observer.plugin_reports(NodeState(held=("gpu-0000-17-00-0-vfio",)))
    assert host.wanted[-1] == {SECOND}
    host.observer.plugin_reports(NodeState())
    assert host.wanted[-1] == {FIRST, SECOND}
