"""Reads what a pretended node shows, by the driver's own reading, and says where its parts disagree."""

from pathlib import Path

from fakegpu.sysfs.drivers import is_vfio
from fakegpu.sysfs.tree import PRETENDED, all_files
from tests.gpus import FakeMachine, functions_of, iommu_group_of, read_function


def disagreements(machine: FakeMachine, sysfs: Path, device_root: Path) -> list[str]:
    """What does not fit together: the tree, the lists of drivers and groups, NVML, and the device nodes."""
    return [
        *_of_drivers(sysfs),
        *_of_functions(machine, sysfs),
        *_of_vfio(machine, device_root),
        *_of_nvml(machine, device_root),
        *_of_the_tree(machine, sysfs),
    ]


def drivers_of(sysfs: Path, pci: str) -> list[str]:
    """The drivers that count a function among theirs."""
    drivers = sysfs / "bus/pci/drivers"
    return sorted(one.name for one in drivers.iterdir() if (one / pci).is_symlink())


def _of_drivers(sysfs: Path) -> list[str]:
    found = []
    for folder in (sysfs / "bus/pci/devices").iterdir():
        link = folder / "driver"
        shown = [link.readlink().name] if link.is_symlink() else []
        if drivers_of(sysfs, folder.name) != shown:
            listed = drivers_of(sysfs, folder.name)
            found.append(f"{folder.name} shows the driver {shown}, and is listed by {listed}")
        if not folder.resolve().is_dir():
            found.append(f"{folder.name} leads nowhere")
    return found


def _of_functions(machine: FakeMachine, sysfs: Path) -> list[str]:
    found = []
    node = machine.node()
    there = {one.name for one in (sysfs / "bus/pci/devices").iterdir()}
    if there != {str(pci) for pci in node.kernel.functions}:
        found.append(f"the bus has {sorted(there)}")
    for pci, state in node.kernel.functions.items():
        seen = read_function(sysfs, pci)
        group = iommu_group_of(sysfs, pci)
        if seen is None or (seen.driver != state.driver and not state.releasing):
            found.append(f"{pci} is read as {seen}, and has {state.driver}")
        if (group is not None) != machine.spec.iommu.present:
            found.append(f"{pci} is in group {group}")
        if group is not None and pci not in {one.pci for one in group.functions}:
            found.append(f"group {group.number} does not list {pci}")
    return found


def _of_vfio(machine: FakeMachine, device_root: Path) -> list[str]:
    """The nodes of groups are those of the functions that a driver of vfio has."""
    functions = machine.node().kernel.functions
    known = functions_of(machine.spec)
    groups = {str(known[pci].group) for pci, one in functions.items() if is_vfio(machine.spec, one.driver)}
    nodes = {one.name.removeprefix("noiommu-") for one in (device_root / "dev/vfio").glob("*[0-9]")}
    return [] if nodes == groups else [f"/dev/vfio has {sorted(nodes)}, vfio the groups {sorted(groups)}"]


def _of_nvml(machine: FakeMachine, device_root: Path) -> list[str]:
    """NVML lists the GPUs that the NVIDIA driver has, and each has a node."""
    if not machine.state.driver_loaded:
        return []
    kernel, nvml = machine.node().kernel, machine.nvml()
    nvml.init()
    listed = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    found = [str(gpu.pci()) for gpu in listed]
    minors = sorted(f"nvidia{gpu.minor()}" for gpu in listed)
    nvml.shutdown()
    bound = sorted(str(pci) for pci in machine.state.gpus if kernel.has_nvidia(pci))
    nodes = sorted(one.name for one in (device_root / "dev").glob("nvidia[0-9]*"))
    wrong = [] if found == bound else [f"NVML lists {found} of {bound}"]
    return wrong if nodes == minors else [*wrong, f"/dev has {nodes} for {minors}"]


def _of_the_tree(machine: FakeMachine, sysfs: Path) -> list[str]:
    """What is other than if the tree had been laid just now."""
    wanted = all_files(machine.node())
    shown = {
        path.relative_to(sysfs).as_posix()
        for path in sysfs.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.name != PRETENDED
    }
    different = shown ^ wanted.keys()
    for path, entry in wanted.items():
        file = sysfs / path
        if isinstance(entry, str) and path in shown and file.read_text() != entry:
            different.add(path)
        if not isinstance(entry, str) and path in shown and file.resolve() != (sysfs / entry.path).resolve():
            different.add(path)
    return [f"{path} is not as if it were laid just now" for path in sorted(different)]
