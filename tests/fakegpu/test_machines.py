"""The machine files: shipped ones are what they are named for, wrong ones are told all their errors."""

from pathlib import Path

import pytest

from tests.gpus import ConfigError, FakeMachine, known_machines, load_machine

GOOD = """
driver_version: "570.1"
cuda_driver_version: "12.8"
product: {name: NVIDIA X, device_id: 0x1, brand: Nvidia, architecture: Hopper, compute_capability: "9.0"}
gpus:
  - {pci: "0000:02:00.0", minor: 0, pcie_root: "pci0000:00"}
  - {pci: "0000:01:00.0", minor: 1, pcie_root: "pci0000:00"}
"""


def test_uuids_are_the_same_each_time_and_never_twice() -> None:
    machines = [(name, load_machine(name).slots) for name in known_machines()]
    uuids, again = (
        [FakeMachine.open(name).uuid(slot.pci) for name, slots in machines for slot in slots]
        for _ in range(2)
    )
    assert uuids == again
    assert len(set(uuids)) == len(uuids)


def test_a_machine_file_is_taken_by_its_path_and_sorted_by_the_bus(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    spec = load_machine(str(path))
    assert spec.name == "mine"
    assert [slot.minor for slot in spec.slots] == [1, 0]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"570.1"', "570.1", 'driver_version: must be a version in quotes, "580.95.05"'),
        ("brand: Nvidia", "brand: Acme", "product.brand: must be one of GeForce, "),
        ("architecture: Hopper", "architecture: Fermi 2", "product.architecture: must be"),
        ("minor: 1", "minor: -1", "gpus[1].minor: must be a whole number from 0"),
        ("minor: 1", "minor: 0", "gpus: no two may have the same minor"),
        ("0000:01:00.0", "1:0", "gpus[1].pci: '1:0' is not a PCI address"),
        ("gpus:", "gpu_list:", "gpus: must be a list"),
        ("gpus:", "nvlink: {pairs: [[0, 0, 4]]}\ngpus:", "nvlink.pairs[0]: must name two different GPUs"),
        ("gpus:", "nvlink: {pairs: [[0, 1]]}\ngpus:", "nvlink.pairs: must be a list of"),
        ("brand: Nvidia,", "brand: Nvidia, mig: a100-41gb,", "product.mig: must be one of a100-40gb"),
        (
            *("brand: Nvidia,", "brand: Nvidia, mig: {memory_slices: 4, profiles: [{name: huge}]},"),
            "product.mig.profiles[0].name: must be a profile such as",
        ),
        ("gpus:", "p2p: maybe\ngpus:", "p2p: must be true or false"),
        ("gpus:", "fabric: {state: wild, cluster_uuid: x, clique: 1}\ngpus:", "fabric.state: must be one of"),
        ("gpus:", "colour: green\ngpus:", "colour: unknown field"),
        ("minor: 1,", "minor: 1, switches: s0,", "gpus[1].switches: must be a list of texts"),
        (GOOD, "- 1", "the file: must be a mapping"),
        (GOOD, "{", "is not YAML"),
    ],
)
def test_a_wrong_field_is_told_with_its_path(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_machine(str(path))
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
