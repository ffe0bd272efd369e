"""Our CDI spec is compared with that of nvidia-ctk, whatever release prints it and however it fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuctl.doctor.check import Finding
from tests.gpuctl.verify.subjects import built_machine
from tests.gpus import FakeMachine, Gpu, NodeIncomplete
from tests.plugin import Hook, InstalledDriver
from tools.conformance.cdi_edits import ALL_CALLS, own_spec, unaccepted
from tools.hardware.nvidia_ctk import compare_specs

HOOK = Hook("/usr/bin/nvidia-cdi-hook", ALL_CALLS)


class Node:
    """One T4, and a program in place of nvidia-ctk that prints a spec."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine: FakeMachine = built_machine(folder, "t4")
        pci = min(self.machine.state.gpus)
        self.gpu = Gpu(pci, self.machine.uuid(pci), self.machine.state.gpus[pci].minor, 0)
        self.driver = InstalledDriver.below(folder / "driver")

    def ours(self) -> Any:
        return own_spec(self.driver, self.folder / "sys", [self.gpu], HOOK)

    def compare(self, theirs: Any, before: str = "") -> Finding:
        """Compare with what a program prints after it ran the lines ``before``."""
        program = self.folder / "nvidia-ctk"
        (self.folder / "theirs.json").write_text(json.dumps(theirs, indent=2))
        program.write_text(f"#!/bin/sh\n{before}\ncat {self.folder / 'theirs.json'}\n")
        program.chmod(0o755)
        return compare_specs(program, self.driver, self.folder / "sys", [self.gpu])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_each_difference_without_a_reason_is_named_and_those_with_one_are_not(node: Node) -> None:
    theirs, ours = node.ours(), node.ours()
    edits, gpu = theirs["containerEdits"], theirs["devices"][0]["containerEdits"]
    gpu["deviceNodes"][0] |= {"permissions": "rwm", "fileMode": 438}
    gpu["additionalGids"] = [44]
    edits["env"].append("NVIDIA_NEW=1")
    mount = edits["mounts"].pop(0)
    edits["hooks"].append({**edits["hooks"][0], "args": ["nvidia-cdi-hook", "new"]})
    found = node.compare(theirs)
    assert found.status == "warn"
    assert set(found.details) == {
        "all containers: variable NVIDIA_NEW: theirs alone",
        f"all containers: mount {mount['containerPath']}: ours alone",
        "all containers: call new: theirs alone",
    }
    theirs = node.ours()
    theirs["devices"][0]["name"] = "all"
    theirs["containerEdits"]["hooks"].reverse()
    first, second = unaccepted(theirs, ours)
    assert first == f"{node.gpu.uuid}: only ours has the device"
    assert second.startswith("all containers: calls: update-application-profile, ")


@pytest.mark.parametrize(
    ("before", "says"),
    [("echo no NVML; exit 3", "ended with 3: no NVML"), ("echo '{]'; exit 0", "no CDI spec")],
)
def test_a_generator_that_fails_or_prints_garbage_is_named(node: Node, before: str, says: str) -> None:
    with pytest.raises(NodeIncomplete) as failed:
        node.compare({}, before)
    assert says in failed.value.what


def test_nothing_is_made_on_the_node_and_a_missing_node_is_named(node: Node) -> None:
    (node.folder / "driver/dev/nvidia-uvm").unlink()
    with pytest.raises(NodeIncomplete, match="nvidia-uvm is missing"):
        node.ours()
    assert not (node.folder / "driver/dev/nvidia-uvm").exists()
