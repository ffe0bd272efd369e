"""Runs NVIDIA's own CDI generator on a fake node, over a stand-in for NVML."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakegpu.driver_files.layouts import VERSION, Layout, install_driver
from tests.clusters import go_programs
from tests.gpus import FakeMachine, Gpu, build_device_nodes, build_sysfs
from tests.plugin import Hook, InstalledDriver
from tools.conformance.cdi_edits import ALL_CALLS, generator_arguments, own_spec

HOOK = "/opt/nvidia-cdi-hook"
_NVML = Path(__file__).with_name("generator_nvml.c")
_VIDEO = 44
"""The group of DRM nodes on Debian."""
_IN_NAMESPACE = 'mount --bind "$0" /sys && exec "$@"'


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A driver root of some layout with a machine's nodes, and the machine's sysfs; the first GPU counts."""

    root: Path
    sysfs: Path
    machine: FakeMachine

    @classmethod
    def build(cls, folder: Path, layout: Layout) -> FakeNode:
        """Build it, with a library that the generator takes for NVML."""
        machine = FakeMachine.open("l40s-octo")
        root = install_driver(folder / "driver", layout)
        build_device_nodes(root, machine)
        for drm in (path for path in (root / "dev/dri").iterdir() if path.is_char_device()):
            drm.chmod(0o660)
            os.chown(drm, 0, _VIDEO)
        node = cls(root, build_sysfs(folder, machine), machine)
        pci = min(machine.state.gpus)
        defined = {
            "VERSION": f'"{VERSION}"',
            "UUID": f'"{machine.uuid(pci)}"',
            "BUS_ID": f'"{pci}"',
            "MINOR": str(machine.state.gpus[pci].minor),
        }
        library = root / layout.libraries / f"libnvidia-ml.so.{VERSION}"
        library.unlink()
        flags = (*("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"), *("-o", str(library)))
        subprocess.run(["gcc", *flags, *(f"-D{k}={v}" for k, v in defined.items()), str(_NVML)], check=True)
        return node

    def generator(self) -> Path:
        """NVIDIA's generator; it looks for DRM nodes in /sys, so this program gives it the node's own."""
        program = self.sysfs.with_name("nvidia-ctk")
        real = go_programs("container-toolkit") / program.name
        words = ("unshare", "-m", "sh", "-c", _IN_NAMESPACE, str(self.sysfs), str(real))
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
        return program

    def theirs(self) -> Any:
        """The spec that NVIDIA's generator makes."""
        said = subprocess.run(
            [self.generator(), *generator_arguments(self.root, self.root, HOOK), "--no-all-device"],
            check=True, capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        return json.loads(said.stdout)

    @property
    def gpu(self) -> Gpu:
        """The GPU that the specs are for."""
        pci = min(self.machine.state.gpus)
        return Gpu(pci, self.machine.uuid(pci), self.machine.state.gpus[pci].minor, 0)

    def ours(self) -> Any:
        """The spec of a claim for the same GPU."""
        installed = InstalledDriver.below(self.root)
        return own_spec(installed, self.sysfs, [self.gpu], Hook(HOOK, ALL_CALLS))
