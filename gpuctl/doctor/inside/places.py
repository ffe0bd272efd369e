"""Finds where the driver's processes keep things on this node: flags, environment, or the running plugin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driver.devices.names import DRIVER_NAME

if TYPE_CHECKING:
    from driver.roots.driver_roots import DriverRoots

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = {
    "driver_root": ("auto", "where this process sees the installed NVIDIA driver, or auto."),
    "host_driver_root": ("", "the driver root on the host."),
    "host_root": ("/", "where this process sees the root of the host's file system."),
    "plugins_dir": ("/var/lib/kubelet/plugins", "the kubelet's folder for plugins."),
    "registry_dir": ("/var/lib/kubelet/plugins_registry", "the kubelet's folder for registration sockets."),
    "cdi_dir": ("/var/run/cdi", "the folder with the driver's CDI specs."),
    "imex_socket": ("/etc/nvidia-imex/imex_ctrl.sock", "the socket of nvidia-imex on the host."),
    "mps_dir": ("/run/gpu.nvidia.com/mps", "the folder of the MPS supervisor."),
    "sysfs_root": ("/sys", "where sysfs is mounted."),
    "nvml": ("real", "real, or fake:MACHINE[@STATE]."),
    "offers": (
        "",
        "what the node configuration offers to virtual machines: `passthrough`, `vgpu`, `iommufd`.",
    ),
}
"""The default and the help of each flag. All but those of ``_METAVARS`` are paths."""

_METAVARS = {"nvml": "NVML", "offers": "WORD,..."}


@dataclass(frozen=True, slots=True)
class Places:
    """The paths on this node as this process sees them, and which NVML it uses.

    ``driver_root`` is a path or ``auto``; ``host_driver_root`` is empty if it was not given. ``offers`` is
    what the node offers to virtual machines according to the caller, separated by commas.
    """

    driver_root: str
    host_driver_root: str
    host_root: Path
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    imex_socket: Path
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
        # Plugins and pod-resources are neighbours below the kubelet's root, wherever that is.
        return self.plugins_dir.absolute().parent / "pod-resources" / "kubelet.sock"


def place_options(command: Command, *, hidden: bool = True) -> Command:
    """Add the flags by which ``--local`` finds things; each is also read from the environment of the pod.

    They are ``hidden`` where few need them: docs/gpuctl.md describes them once, with ``verify``.
    """
    for name in reversed(_FLAGS):
        text = _FLAGS[name][1]
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar=_METAVARS.get(name, "PATH"),
            envvar=f"GPU_DRA_{name.upper()}",
            help=text[:1].upper() + text[1:],
            hidden=hidden,
        )(command)
    return command


def read_places(given: Mapping[str, str | None], command_lines: Iterable[Sequence[str]]) -> Places:
    """The places: by the given flags, else by those of the running plugin, else by default.

    ``command_lines`` are those of processes that see the same files. They do not count unless exactly one of
    them is the plugin's.
    """
    plugins = [line for line in command_lines if is_plugin(line)]
    running = _flags(plugins[0]) if len(plugins) == 1 else {}
    chosen: dict[str, Any] = {
        name: given.get(name) or running.get(name) or default for name, (default, _) in _FLAGS.items()
    }
    kinds = {one.name: one.type for one in fields(Places)}
    chosen |= {name: Path(value) for name, value in chosen.items() if kinds[name] == "Path"}
    return Places(**chosen)


def is_plugin(words: Sequence[str]) -> bool:
    """Whether a command line is the kubelet plugin's."""
    # An installed program is a script: the interpreter comes before its name.
    if any(PurePosixPath(word).name == "gpu-dra-kubeletplugin" for word in words[:3]):
        return True
    return "kubeletplugin" in words[2:3] and words[1:2] == ["-m"]


def local_command_lines(proc: Path = Path("/proc")) -> list[list[str]]:
    """The command lines of the processes that have the same mounts as this one."""
    found = []
    try:
        # Processes in one mount namespace have the same link here, mnt:[NUMBER]. The containers of a pod each
        # have their own, even where they share the namespace of processes.
        own = os.readlink(proc / "self/ns/mnt")  # noqa: PTH115 - it points to no file
    except OSError:
        return []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.readlink(folder / "ns/mnt") == own:  # noqa: PTH115 - likewise
                # Each word ends with a NUL, the last one too.
                found.append((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
        except OSError:  # it has ended, or belongs to another user: the link takes the right to trace it
            continue
    return found


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The values of our flags in a command line."""
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in _FLAGS:
            found[name] = value if equals else "".join(words[number + 1 : number + 2])
    return found
