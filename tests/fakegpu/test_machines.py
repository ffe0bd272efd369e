"""The machine files: shipped ones are what they are named for, wrong ones are told all their errors."""

from pathlib import Path

import pytest

from tests.gpus import (
    INSTANCE_TYPES,
    ConfigError,
    FakeMachine,
    functions_of,
    instance_types,
    known_machines,
    load_machine,
)

GOOD = """
driver_version: "570.1"
cuda_driver_version: "12.8"
product: {name: NVIDIA X, device_id: 0x1, brand: Nvidia, architecture: Hopper, compute_capability: "9.0"}
gpus:
  - {pci: "0000:02:00.0", minor: 0, pcie_root: "pci0000:00"}
  - {pci: "0000:01:00.0", minor: 1, pcie_root: "pci0000:00"}
"""

PRODUCT = GOOD.splitlines()[3]


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


def test_the_file_of_an_instance_type_names_its_sources_and_what_is_a_placeholder() -> None:
    names = instance_types()
    assert len(names) > 30
    assert not set(names) & set(known_machines())
    assert [name for name in names if name != name.lower() or load_machine(name).name != name] == []
    for name in names:
        head, *lines = (INSTANCE_TYPES / f"{name}.yaml").read_text().splitlines()
        sourced = [line.partition(": ")[0] for line in lines if line.startswith("# - ")]
        placeholders = [line for line in lines if line.startswith("# placeholder: ")]
        told = " ".join((*sourced, *placeholders))
        wanted = ("number", "memory", "address", *(("NVLinks",) if "nvlink:" in lines else ()))
        assert (head, [word for word in wanted if word not in told]) == ("# Sources:", []), name


def test_a_gpu_on_the_bus_of_the_root_has_no_bridge_above_it() -> None:
    (gpu,) = functions_of(load_machine("g5.xlarge")).values()
    assert (gpu.folder, gpu.is_gpu) == ("devices/pci0000:00/0000:00:1e.0", True)


def test_a_product_can_be_named_and_begun_with(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    products = []
    for product in ("t4", "{like: t4}", "{like: t4, memory_mib: 16384}"):
        path.write_text(
            "\n".join((GOOD.partition("product:")[0], f"product: {product}", *GOOD.splitlines()[4:]))
        )
        products.append(load_machine(str(path)).product)
    assert products[0] == products[1] == load_machine("g4dn.xlarge").product
    assert products[2] == load_machine("standard_nc4as_t4_v3").product


def test_an_unknown_instance_type_is_told_what_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"did you mean standard_nd96isr_h[12]00_v5"):
        load_machine("Standard_ND96isr_H100_v5")
    with pytest.raises(ConfigError, match=r"did you mean p5\.48xlarge"):
        load_machine("p5.48xlarg")


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
        ("product: {", "product: {like: t5, ", "product.like: must be one of a100-sxm4-40gb, "),
        (PRODUCT, "product: t5", "product: must be a mapping, or one of a100-sxm4-40gb, "),
        (PRODUCT, "", "product: must be a mapping, or one of a100-sxm4-40gb, "),
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
