"""A node whose GPUs can be passed through, and how its functions stand."""

from pathlib import Path

from driver.claims.opaque import API_VERSION
from driver.hardware.pci_view import pci_view
from driver.kinds.passthrough.kind import passthrough_device_name
from tests.clusters import Object
from tests.gpus import DRIVER_NAME, FakeKernel, NvmlDevice, PciAddress, Watch, read_function
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef

QUAD = "passthrough-quad"
"""Two GPUs alone in their groups, the second with audio and USB, and two that share a group."""


class PassthroughNode(FakeNode):
    """Such a node. ``before`` are the drivers of all functions at its start, by address."""

    def __init__(self, folder: Path, machine: str = QUAD, *, on_disk: bool = False) -> None:
        super().__init__(folder, machine, on_disk=on_disk, binds=True)
        self.before = self.drivers()

    def drivers(self) -> dict[str, str | None]:
        """The driver of each function in the groups of GPUs, bridges included."""
        return {
            str(function.pci): function.driver
            for group in pci_view(self.sysfs).groups
            for function in group.functions
        }

    def changed(self) -> dict[str, str | None]:
        """The functions whose drivers are others than at the start."""
        return {pci: driver for pci, driver in self.drivers().items() if driver != self.before.get(pci)}

    def device(self, *gpus: int) -> str:
        """The device name of GPUs that are passed through together, by their positions on the bus."""
        name = passthrough_device_name([self.gpus[gpu] for gpu in gpus])
        assert name is not None
        return name

    def vm(self, name: str, *gpus: int, uid: str = "", iommu: Object | None = None) -> ClaimRef:
        """An allocated claim for these GPUs, with an opaque configuration where one is given."""
        extra: Object = {}
        if iommu is not None:
            parameters = {"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": iommu}
            opaque = {"driver": DRIVER_NAME, "parameters": parameters}
            extra["config"] = [{"source": "FromClaim", "requests": [], "opaque": opaque}]
        return self.claim_devices(name, self.device(*gpus), uid=uid, **extra)

    def prepared_vm(self, name: str, *gpus: int, iommu: Object | None = None) -> ClaimRef:
        """The same, prepared."""
        ref = self.vm(name, *gpus, iommu=iommu)
        self.prepare(ref)
        return ref

    def bind_by_hand(self, gpu: int, driver: str = "vfio-pci") -> None:
        """What an admin does: another driver for a GPU."""
        bind(self.kernel, self.sysfs, self.gpus[gpu], driver)

    def persistence(self, gpu: int) -> bool:
        """Whether the driver keeps a GPU initialised."""
        return self.machine.state.gpus[self.gpus[gpu]].persistence

    def turn_persistence_on(self, gpu: int) -> None:
        """What nvidia-persistenced does."""

        def job(device: NvmlDevice, watch: Watch) -> None:
            watch("set_persistence_mode", lambda: device.set_persistence_mode(True))

        self.discovery.on_gpu(self.gpus[gpu], job)

    def listed(self) -> list[PciAddress]:
        """The GPUs that NVML tells of."""
        return [gpu.pci for gpu in self.discovery.snapshot().gpus]


def bind(kernel: FakeKernel, sysfs: Path, pci: PciAddress, driver: str) -> None:
    """Give a function another driver."""
    kernel.load_module(driver, 1.0)
    folder = sysfs / "bus/pci/devices" / str(pci)
    kernel.write(folder / "driver_override", f"{driver}\n", 1.0)
    function = read_function(sysfs, pci)
    if function is not None and function.driver is not None:
        kernel.write(sysfs / "bus/pci/drivers" / function.driver / "unbind", str(pci), 1.0)
    kernel.write(sysfs / "bus/pci/drivers_probe", str(pci), 1.0)
