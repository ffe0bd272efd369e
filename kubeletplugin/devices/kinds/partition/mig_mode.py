"""Turns MIG mode of one GPU on and off within a job of its lane, never where that needs a reset."""

from __future__ import annotations

from driver.errors import ClaimBlocked, ClaimRefused
from driver.hardware.mig_walk import changes_without_reset
from driver.nvml.api import NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.mig import MigActivation
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.kinds.partition.gpu_instances import processes


class MigSwitch:
    """The MIG mode of one GPU."""

    def __init__(self, pci: PciAddress, device: NvmlDevice, watch: Watch) -> None:
        self._pci = pci
        self._device = device
        self._watch = watch

    def is_on(self) -> bool:
        """Whether MIG mode is on now; it never is on a GPU that knows no MIG."""
        try:
            return self._watch("mig_mode", self._device.mig_mode).enabled
        except NotSupported:
            return False

    def is_free(self) -> bool:
        """Whether the mode changes without a reset."""
        return changes_without_reset(self._device, self._watch)

    def refuse_unless_free(self) -> None:
        """Raise ClaimRefused where only a reset turns the mode on."""
        if not self.is_free():
            raise ClaimRefused(
                f"MIG mode of GPU {self._pci} is off, and turning it on needs a reset of the GPU, which this "
                "driver never does",
                f"turn it on (nvidia-smi -i {self._pci} -mig 1, then --gpu-reset) while nothing uses the "
                "GPU, or delete the pod, so that it is scheduled anew",
            )

    def turn_on(self) -> None:
        """Turn the mode on, which needs no reset here; raises ClaimBlocked while processes keep it off."""
        self._require("on", self.set(enabled=True))

    def turn_off(self) -> None:
        """Turn the mode off; raises ClaimBlocked while processes keep it on, or where it needs a reset."""
        if not self.is_free():
            raise ClaimBlocked(
                f"GPU {self._pci} cannot be handed out whole: its MIG mode is on, and turning it off needs a "
                "reset of the GPU, which this driver never does",
                f"turn it off (nvidia-smi -i {self._pci} -mig 0, then --gpu-reset) while nothing uses it",
            )
        self._require("off", self.set(enabled=False))

    def set(self, *, enabled: bool) -> MigActivation:
        """Set the mode; where that is not done at once, the mode is as before and none is left pending."""
        activation = self._watch("set_mig_mode", lambda: self._device.set_mig_mode(enabled))
        if activation != "done":
            self._watch("set_mig_mode", lambda: self._device.set_mig_mode(not enabled))
        return activation

    def _require(self, wanted: str, activation: MigActivation) -> None:
        if activation == "in-use":
            who, told = processes(self._watch("process_ids", self._device.process_ids))
            raise ClaimBlocked(
                f"MIG mode of GPU {self._pci} cannot be turned {wanted}: the GPU is used by {who}",
                "end them; the kubelet tries again",
                for_log=f"used by {told}",
            )
        if activation == "reset-required":
            raise ClaimBlocked(
                f"MIG mode of GPU {self._pci} cannot be turned {wanted}: the GPU waits for a reset",
                f"reset it (nvidia-smi -i {self._pci} --gpu-reset) while nothing uses it",
            )
