"""What a guest is made of: an IOMMU, the host's files, and devices in groups of every sort."""

from collections.abc import Iterator
from pathlib import Path

MEMORY_MIB = 2048
CORES = 2

ON_THE_COMMAND_LINE = "gpu_dra_guest"
"""The word of the kernel's command line by which what runs there knows that it is in a guest."""

_KERNEL_WORDS = (
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "intel_iommu=on",
    # The emulated IOMMU remaps no interrupts, and vfio opens devices only with that.
    "vfio_iommu_type1.allow_unsafe_interrupts=1",
    # Whoever waits in the kernel for so long waits for ever: the guest ends then, and says where it was.
    "sysctl.kernel.hung_task_timeout_secs=60",
    "sysctl.kernel.hung_task_panic=1",
    ON_THE_COMMAND_LINE,
)


def command_line(image: Path, initramfs: Path, shared: Path) -> list[str]:
    """QEMU for a guest that ends with its first process; ``shared`` is the folder that both can write.

    It emulates the processor: guests hang where /dev/kvm is there and nested.
    """
    return [
        "qemu-system-x86_64",
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
        *("-m", str(MEMORY_MIB), "-smp", str(CORES)),
        *("-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(image), "-initrd", str(initramfs), "-append", " ".join(_KERNEL_WORDS)),
        *("-device", "intel-iommu,intremap=off"),
        *_share("host", Path("/"), "02.0", writable=False),
        *_share("out", shared, "03.0", writable=True),
        *(word for device in _devices() for word in ("-device", device)),
    ]


def _share(tag: str, folder: Path, address: str, *, writable: bool) -> Iterator[str]:
    yield "-fsdev"
    yield f"local,id={tag},path={folder},security_model=none,multidevs=remap" + (
        "" if writable else ",readonly=on"
    )
    yield "-device"
    yield f"virtio-9p-pci,fsdev={tag},mount_tag={tag},addr={address}"


def _devices() -> Iterator[str]:
    """The devices whose drivers are changed; ``tests.guest.inside.vfio.devices`` knows their addresses."""
    # A device of three functions, all in one group: none of them can be kept from the others.
    yield "e1000,addr=05.0,multifunction=on"
    yield "virtio-rng-pci,addr=05.1"
    yield "qemu-xhci,addr=05.2"
    # Two devices below a bridge to conventional PCI, in one group with the bridge.
    yield "pcie-pci-bridge,id=conventional,addr=06.0"
    yield "e1000,bus=conventional,addr=1"
    yield "pci-testdev,bus=conventional,addr=2"
    # A device with virtual functions, each in a group of its own.
    yield "pcie-root-port,id=nvme-port,chassis=1,slot=1,addr=07.0"
    yield "nvme-subsys,id=subsystem"
    yield (
        "nvme,serial=guest,subsys=subsystem,bus=nvme-port,max_ioqpairs=12,msix_qsize=12,"
        "sriov_max_vfs=3,sriov_vq_flexible=6,sriov_vi_flexible=3"
    )
    # A device that no IOMMU guards.
    yield "pxb-pcie,id=unguarded,bus_nr=0x40,bypass_iommu=on,addr=08.0"
    yield "pcie-root-port,id=unguarded-port,bus=unguarded,chassis=2,slot=2"
    yield "pci-testdev,bus=unguarded-port"
