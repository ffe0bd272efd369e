"""A node of a real cluster with fake GPUs at the paths of a real one, for a driver that runs in pods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envtest.client.layout import NodeLayout
from fakegpu.driver_files.driver_root import ContainerView
from tests.clusters import Object
from tests.flow.share_scene import daemon_pid
from tests.gpus import DRIVER_NAME, MACHINES, FakeMachine, build_driver_root, build_sysfs

DRIVER_ROOT, GPUS = "/run/nvidia/driver", "/run/nvidia/gpus"
"""Where the node has its driver root, as with a driver container, and what stands for the hardware."""

MPS_DIR = "/run/gpu.nvidia.com/mps"
NVML = f"fake:{GPUS}/machine.yaml@{GPUS}/state.json"
PYTHON = "/usr/local/lib/gpu-dra/bin/python3"
"""The interpreter of the image."""


@dataclass(frozen=True, slots=True)
class InstalledNode:
    """One node; ``machine`` changes and shows its hardware."""

    node: NodeLayout
    machine: FakeMachine

    @classmethod
    def build(cls, node: NodeLayout, number: int, machine: str = "hgx-h100") -> InstalledNode:
        """Put GPUs into a node; those of two nodes differ in their addresses, and so in their UUIDs."""
        gpus = node.host_path(GPUS)
        gpus.mkdir(parents=True)
        described = (MACHINES / f"{machine}.yaml").read_text()
        (gpus / "machine.yaml").write_text(described.replace('pci: "0000:', f'pci: "{number:04x}:'))
        fake = FakeMachine.open(f"fake:{gpus}/machine.yaml@{gpus}/state.json")
        view = ContainerView(root=Path(DRIVER_ROOT), machine=NVML, python=Path(PYTHON))
        build_driver_root(node.host_path(DRIVER_ROOT), fake, view=view)
        build_sysfs(gpus, fake)
        return cls(node, fake)

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder."""
        return self.node.plugins_dir / DRIVER_NAME

    def hardware(self) -> dict[str, tuple[object, ...]]:
        """Of each GPU what the driver may change: compute mode, time-slice, MIG mode and instances."""
        return {
            str(pci): (gpu.compute_mode, gpu.time_slice, gpu.mig.enabled, gpu.mig.instances)
            for pci, gpu in self.machine.state.gpus.items()
        }

    def daemons(self) -> dict[str, int]:
        """The process ids of the MPS daemons, by their names."""
        found = self.node.host_path(MPS_DIR).glob("*/pipe/*.pid")
        return {pid.parent.parent.name: daemon_pid(pid.parent) for pid in found}

    def left(self) -> list[str]:
        """What of the driver lies in the folders of the node that it uses."""
        folders = (
            self.node.plugins_dir,
            self.node.registry_dir,
            self.node.cdi_dir,
            self.node.host_path(MPS_DIR),
        )
        return sorted(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())


def values(host: str, port: int, tag: str) -> Object:
    """Values of the chart for a cluster of such nodes whose pods reach the API server there."""
    return {
        "image": {"repository": "localhost/gpu-dra", "tag": tag, "pullPolicy": "Never"},
        "gpuNodes": "all",
        "mps": {"enabled": True},
        "metrics": {"enabled": True},
        **values_of_fakes(host, port),
    }


def values_of_fakes(host: str, port: int) -> Object:
    """The values without which the driver finds neither the GPUs of such nodes nor the API server."""
    nvml = [f"--nvml={NVML}", f"--sysfs-root={GPUS}/sys"]
    return {
        "apiServer": {"host": host, "port": str(port)},
        "driver": {"root": DRIVER_ROOT},
        "controller": {"extraArgs": nvml},
        "plugin": {"extraArgs": nvml},
        "extraVolumes": [{"name": "gpus", "hostPath": {"path": "/run/nvidia", "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "gpus", "mountPath": "/run/nvidia"}],
    }
