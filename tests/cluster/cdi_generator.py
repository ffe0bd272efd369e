"""Runs NVIDIA's own CDI generator on a fake node, over a stand-in for NVML; takes specs apart to compare."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envtest.real.build import go_programs
from fakegpu.driver_files.driver_root import build_device_nodes, build_sysfs
from fakegpu.driver_files.layouts import VERSION, Layout, install_driver
from fakegpu.machine.fake_machine import FakeMachine
from kubeletplugin.claims.cdi.hook import CACHE, CUDA_COMPAT, LINKS, NO_NODES, PROFILE, Hook
from kubeletplugin.claims.cdi.spec import CdiDevice, Edits, HostPaths, build_spec, file_edits
from kubeletplugin.devices.host.driver_files import DriverRoot, InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, HostNow, drm_links
from tests.cluster.cdi_differences import Entries

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

    def theirs(self) -> Any:
        """The spec that NVIDIA's generator makes; it looks for DRM nodes in /sys, so it is given this one."""
        program = go_programs("container-toolkit") / "nvidia-ctk"
        said = subprocess.run(
            [
                *("unshare", "-m", "sh", "-c", _IN_NAMESPACE, str(self.sysfs), str(program), "--quiet"),
                *("cdi", "generate", "--mode", "nvml", "--format", "json", "--no-all-device"),
                *("--feature-flag", "disable-nvsandboxutils", "--device-name-strategy", "uuid"),
                *("--driver-root", str(self.root), "--dev-root", str(self.root)),
                *("--nvidia-cdi-hook-path", HOOK),
            ],
            check=True, capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        return json.loads(said.stdout)

    def ours(self) -> Any:
        """The spec of a claim for the same GPU."""
        pci, nodes = min(self.machine.state.gpus), GpuNodes(self.sysfs)
        now, host = HostNow(InstalledDriver.below(self.root)), HostPaths(self.root, self.root)
        own = nodes.whole(pci, self.machine.state.gpus[pci].minor, now)
        device = CdiDevice(self.machine.uuid(pci), Edits(own, links=drm_links(pci, own)))
        hook = Hook(HOOK, frozenset({LINKS, CACHE, CUDA_COMPAT, NO_NODES, PROFILE}))
        files = file_edits(DriverRoot(self.root).files(), host, hook)
        return json.loads(build_spec([device], nodes.control(now), files, host))


def taken_apart(edits: Mapping[str, Any]) -> Entries:
    """The entries of containerEdits; of two of one name the later counts."""
    return dict(_entries(edits))


def _entries(edits: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for variable in edits.get("env", ()):
        name, _, value = variable.partition("=")
        yield ("variable", name), {"value": value}
    for group in edits.get("additionalGids", ()):
        yield ("group", str(group)), {}
    for node in edits.get("deviceNodes", ()):
        yield ("node", node["path"]), node
    for mount in edits.get("mounts", ()):
        yield ("mount", mount["containerPath"]), {**mount, "options": sorted(mount["options"])}
    for call in edits.get("hooks", ()):
        _program, name, *arguments = call["args"]
        if name != LINKS:
            yield ("call", name), {**call, "args": arguments}
            continue
        for link in arguments[1::2]:
            target, path = re.fullmatch(r"(.+)::(.+)", link, re.ASCII).groups()  # type: ignore[union-attr]
            yield ("link", path), {"target": target, **{key: call[key] for key in call if key != "args"}}


def calls_in_order(edits: Mapping[str, Any]) -> list[str]:
    """The commands that the hook is called with, each once."""
    return list(dict.fromkeys(call["args"][1] for call in edits["hooks"]))
