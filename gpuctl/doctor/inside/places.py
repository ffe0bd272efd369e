"""Where the driver's processes of a node keep things: from flags, the environment, or the running plugin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driver.devices.names import DRIVER_NAME

if TYPE_CHECKING:
    from driver.roots.driver_roots import DriverRoots

Command = TypeVar("Command", bound=Callable[..., Any])

AUTO = "auto"
PLUGIN = "gpu-dra-kubeletplugin"
_DEFAULTS = {
    "driver_root": AUTO,
    "host_driver_root": "",
    "host_root": "/",
    "plugins_dir": "/var/lib/kubelet/plugins",
    "registry_dir": "/var/lib/kubelet/plugins_registry",
    "cdi_dir": "/var/run/cdi",
    "mps_dir": "/run/gpu.nvidia.com/mps",
    "sysfs_root": "/sys",
    "nvml": "real",
    "offers": "",
}
_HELP = {
    "driver_root": "Where this process sees the installed NVIDIA driver, or auto.",
    "host_driver_root": "Where the host has the driver root.",
    "host_root": "Where this process sees the root of the host's file system.",
    "plugins_dir": "The kubelet's folder for plugins.",
    "registry_dir": "The kubelet's folder for registration sockets.",
    "cdi_dir": "The folder with the driver's CDI specs.",
    "mps_dir": "The folder of the MPS supervisor.",
    "sysfs_root": "Where sysfs is mounted.",
    "nvml": "real, or fake:MACHINE[@STATE].",
    "offers": "What the node configuration offers to virtual machines: `passthrough`, `vgpu`, `iommufd`.",
}
_METAVARS = {"nvml": "NVML", "offers": "WORD,..."}


@dataclass(frozen=True, slots=True)
class Places:
    """The paths on this node, as this process sees them, and which NVML there is.

    ``driver_root`` is a path or ``auto``; ``host_driver_root`` is empty where it was not given. ``offers`` is
    what the node is said to offer to virtual machines, with commas between.
    """

    driver_root: str
    host_driver_root: str
    host_root: Path
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    mps_dir: Path
    sysfs_root: Path
    nvml: str
    offers: str = ""

    def roots(self) -> DriverRoots:
        """Where the NVIDIA driver is looked for; raises ConfigError for flags that contradict each other."""
        from driver.roots.flag import roots_from_flags

        on_host = Path(self.host_driver_root) if self.host_driver_root else None
        return roots_from_flags(self.driver_root, self.host_root, self.sysfs_root, on_host)

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder."""
        return self.plugins_dir / DRIVER_NAME

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's socket that says which devices containers have."""
        return self.plugins_dir.absolute().parent / "pod-resources" / "kubelet.sock"


def place_options(command: Command) -> Command:
    """Add the flags by which ``--local`` finds things; each is also read from the environment of the pod."""
    for name in reversed(_DEFAULTS):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar=_METAVARS.get(name, "PATH"),
            envvar=f"GPU_DRA_{name.upper()}",
            help=f"With --local: {_HELP[name][0].lower()}{_HELP[name][1:]}"
            if name != "nvml"
            else f"With --local: {_HELP[name]}",
        )(command)
    return command


def read_places(given: Mapping[str, str | None], command_lines: Iterable[Sequence[str]]) -> Places:
    """The places: what was given, else what the running plugin was given, else the defaults.

    ``command_lines`` are those of processes that see the same files; where not exactly one is the plugin,
    none counts.
    """
    plugins = [line for line in command_lines if is_plugin(line)]
    running = _flags(plugins[0]) if len(plugins) == 1 else {}
    chosen = {name: given.get(name) or running.get(name) or default for name, default in _DEFAULTS.items()}
    return Places(
        driver_root=chosen["driver_root"],
        host_driver_root=chosen["host_driver_root"],
        host_root=Path(chosen["host_root"]),
        plugins_dir=Path(chosen["plugins_dir"]),
        registry_dir=Path(chosen["registry_dir"]),
        cdi_dir=Path(chosen["cdi_dir"]),
        mps_dir=Path(chosen["mps_dir"]),
        sysfs_root=Path(chosen["sysfs_root"]),
        nvml=chosen["nvml"],
        offers=chosen["offers"],
    )


def is_plugin(words: Sequence[str]) -> bool:
    """Whether a command line is the kubelet plugin's."""
    if any(PurePosixPath(word).name == PLUGIN for word in words[:3]):
        return True
    return "kubeletplugin" in words[2:3] and words[1:2] == ["-m"]


def local_command_lines(proc: Path = Path("/proc")) -> list[list[str]]:
    """The command lines of the processes that have the same mounts as this one."""
    found = []
    try:
        own = os.readlink(proc / "self/ns/mnt")  # noqa: PTH115 - it points to no file
    except OSError:
        return []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.readlink(folder / "ns/mnt") == own:  # noqa: PTH115 - likewise
                found.append((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
        except OSError:  # it has ended, or is another user's
            continue
    return found


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The flags that are known here, as the command line has them."""
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in _DEFAULTS:
            found[name] = value if equals else "".join(words[number + 1 : number + 2])
    return found
