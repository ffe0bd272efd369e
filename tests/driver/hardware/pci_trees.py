"""Writes sysfs trees as plain files, as the kernel shows PCI functions and IOMMU groups."""

from pathlib import Path

from tests.gpus import PciAddress

MEMORY, MEMORY_64, IO_PORTS = 0x40200, 0x14220C, 0x40101


class PciTree:
    """A bus of functions below ``root``, which is to be given as the root of sysfs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def function(
        self,
        address: str,
        vendor: str = "0x10de",
        device: str = "0x2330",
        kind: str = "0x030200",
        driver: str = "",
        group: int | None = None,
        above: str = "devices/pci0000:80/0000:80:01.0",
    ) -> Path:
        """Add a function, or say more of one; its folder, which is in that one."""
        folder = self.root / above / address
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("vendor", vendor), ("device", device), ("class", kind)):
            (folder / name).write_text(f"{text}\n")
        links = self.root / "bus" / "pci" / "devices"
        links.mkdir(parents=True, exist_ok=True)
        if not (links / address).is_symlink():
            (links / address).symlink_to(f"../../../{above}/{address}")
        if driver:
            (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
        if group is not None:
            self._join(address, folder, group)
        return folder

    def _join(self, address: str, folder: Path, number: int) -> None:
        group = self.root / "kernel" / "iommu_groups" / str(number)
        (group / "devices").mkdir(parents=True, exist_ok=True)
        (group / "devices" / address).symlink_to(f"../../../../devices/pci0000:80/0000:80:01.0/{address}")
        (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{number}")

    def name_group(self, number: int, name: str) -> None:
        """Give a group a name, as vfio does with one of its own making."""
        (self.root / "kernel" / "iommu_groups" / str(number) / "name").write_text(f"{name}\n")

    def regions(self, address: str, *regions: tuple[int, int]) -> None:
        """What a function takes of the address space: size and flags of each region."""
        lines, start = [], 0x38000000000
        for size, flags in regions:
            end = start + size - 1 if size else 0
            lines.append(f"0x{start if size else 0:016x} 0x{end:016x} 0x{flags if size else 0:016x}")
            start += size
        (self._link(address) / "resource").write_text("\n".join(lines) + "\n")

    def virtual(self, physical: str, number: int, address: str) -> Path:
        """Make a function the virtual one of another."""
        (self._link(physical) / f"virtfn{number}").symlink_to(f"../{address}")
        folder = self.function(address)
        (folder / "physfn").symlink_to(f"../{physical}")
        return folder

    def _link(self, address: str) -> Path:
        return self.root / "bus" / "pci" / "devices" / address


def at(address: str) -> PciAddress:
    """The address."""
    return PciAddress.parse(address)
