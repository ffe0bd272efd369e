"""Static partitions say which memory slices they lie on, where that fits into a device."""

from dataclasses import replace

from driver.kinds.partition.kind import static_partitions
from tests.driver.mig_machines import Instances, device, look, make_instances, mig_of, with_mode_on
from tests.gpus import DRIVER_NAME, Device, device_faults

ONE_G, TWO_G, SEVEN_G = 19, 14, 0


def offered(instances: Instances, addressing_mode: str | None = None) -> tuple[Device, ...]:
    """The partitions of an H100, of whose place on the board all is known."""
    machine = with_mode_on("hgx-h100")
    make_instances(device(machine), instances)
    inventory = look(machine)
    seen = replace(inventory.gpus[0], addressing_mode=addressing_mode, numa_node=0, pcie_root="pci0000:00")
    return static_partitions(seen, mig_of(seen), inventory)


def memory_slices(one: Device) -> set[str]:
    return {name for name in one.capacity if name.startswith("memorySlice")}


def test_a_static_partition_has_the_memory_slices_of_its_gpu_instance() -> None:
    found = {
        one.name.rpartition("static-")[2]: memory_slices(one)
        for one in offered(((ONE_G, 6, (0,)), (TWO_G, 2, (0, 0))))
    }

    assert found == {
        "1g-10gb-6": {"memorySlice6"},
        "1c-2g-20gb-2-0": {"memorySlice2", "memorySlice3"},
        "1c-2g-20gb-2-1": {"memorySlice2", "memorySlice3"},
    }


def test_all_eight_memory_slices_fit_beside_what_is_usually_known() -> None:
    [partition] = offered(((SEVEN_G, 0, (4,)),))

    assert len(memory_slices(partition)) == 8
    assert device_faults(partition, DRIVER_NAME) == ()


def test_memory_slices_that_do_not_all_fit_are_left_out() -> None:
    """A partition of all eight, and all that can be known of a GPU: one more than the API takes."""
    [partition] = offered(((SEVEN_G, 0, (4,)),), addressing_mode="HMM")

    assert memory_slices(partition) == set()
    assert partition.capacity["memory"]
    assert device_faults(partition, DRIVER_NAME) == ()
