"""Finds what else hands out the GPUs of a node: registered drivers, running programs, and claims by files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from driver.kube.decode import decode_json
from driver.process.boot import boot_folder
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside.claim_files import read_bounded, read_journal
from gpuctl.doctor.inside.places import Places, is_plugin
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.kubelet.wire.server import is_answered

_PROGRAMS = {
    "gpu-dra-kubeletplugin": "this driver",
    "gpu-dra-controller": "this driver",
    "gpu-dra-mps": "this driver's MPS supervisor",
    "nvidia-device-plugin": "NVIDIA's device plugin",
    "gpu-kubelet-plugin": "NVIDIA's DRA driver",
    "compute-domain-kubelet-plugin": "NVIDIA's DRA driver for ComputeDomains",
    "nvidia-mig-manager": "NVIDIA's MIG manager",
    "nvidia-mig-parted": "NVIDIA's MIG manager",
    "vgpu-device-plugin": "HAMi's device plugin",
    "nvidia-vgpu-mgr": "NVIDIA's vGPU manager, of a virtual machine that runs",
    "nvidia-cuda-mps-control": "an MPS control daemon",
}
"""The programs in whose way a change of a GPU would be, by the name of their file."""

_OWN_MODULES = {"kubeletplugin": "this driver", "controller": "this driver"}
_INTERPRETER = re.compile(r"python|(ba|da)?sh$", re.ASCII)
_MPS_CONTROL = "nvidia-cuda-mps-control"
_OF_GPUS = re.compile(r"gpu|nvidia", re.IGNORECASE)
_RESOURCES = "nvidia.com/"
_CDI_FOLDERS = ("etc/cdi", "var/run/cdi")
_CDI_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_VENDOR, _CLASS = "nvidia.com", "claim"
_MOST_COMMAND_BYTES = 4096

_END = "delete the pods of the claim; when they have ended, the driver gives it back"
_UNINSTALL = "uninstall the driver from this node, which removes its files"
_REMOVE = "remove the file if no driver runs here any more"


@dataclass(frozen=True, slots=True)
class Held:
    """Something that the files of a driver hold for a claim.

    ``gpus`` are PCI addresses, ``nodes`` device nodes by their paths in containers. With neither it may be
    any GPU.
    """

    what: str
    way_out: str
    gpus: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def registered(places: Places) -> Iterator[str]:
    """Drivers and device plugins that the kubelet knows, each with the way out."""
    for socket in _named(places.registry_dir, "*.sock"):
        if _OF_GPUS.search(socket.name):
            yield (
                f"a driver of GPUs is registered with the kubelet at {socket}: keep it away with a node "
                "selector, or uninstall it; remove the socket if no driver has it any more"
            )
    folder = places.plugins_dir.absolute().parent / "device-plugins"
    for socket in _named(folder, "*.sock"):
        if _OF_GPUS.search(socket.name):
            yield f"a device plugin for GPUs serves at {socket}: keep it away with a node selector"
    yield from _in_checkpoint(folder / "kubelet_internal_checkpoint")
    supervisor = places.mps_dir / SOCKET
    if supervisor.is_socket() and is_answered(supervisor):
        yield f"the MPS supervisor of this driver serves at {supervisor}: uninstall the driver from this node"


def _in_checkpoint(file: Path) -> Iterator[str]:
    """The resources of NVIDIA's device plugin in the kubelet's checkpoint of device plugins."""
    # pkg/kubelet/cm/devicemanager/checkpoint: the devices of plugins that run, and those of pods.
    try:
        content = json.loads(read_bounded(file))
        data = content["Data"]
        offered = {name for name, devices in (data.get("RegisteredDevices") or {}).items() if devices}
        given = {str(entry["ResourceName"]) for entry in data.get("PodDeviceEntries") or ()}
    except FileNotFoundError:
        return
    except OSError as error:
        yield f"{file} cannot be read ({error.strerror}), so a device plugin may serve: run this as root"
        return
    except (ValueError, KeyError, TypeError, AttributeError):
        yield f"{file} is not as a kubelet writes it, so a device plugin may serve: look at the kubelet's log"
        return
    for name in sorted(one for one in offered | given if one.startswith(_RESOURCES)):
        yield (
            f"the kubelet has {name} from a device plugin: take the device plugin and the pods with {name} "
            "from this node"
        )


def running(proc: Path) -> Iterator[str]:
    """Programs that run and hand out GPUs, each with the way out; all of /proc is read once."""
    if _text(proc / "2" / "comm").strip() != "kthreadd":
        # Process 2 of a machine is a thread of its kernel; in a namespace of processes it is not.
        yield (
            "the processes of the host cannot be seen from here, nor who uses the GPUs: run this on the "
            "host, or in a container with the host's namespace of processes (hostPID: true)"
        )
    for folder in _processes(proc):
        name, what = _program(_command(folder))
        if what:
            way_out = "end it by: echo quit | nvidia-cuda-mps-control" if name == _MPS_CONTROL else "end it"
            yield f"{what} runs as process {folder.name} ({name}): {way_out}"


def _program(words: list[str]) -> tuple[str, str]:
    """The name of the program of a command line, and what it is; empty if it is none of those."""
    if is_plugin(words):
        return "gpu-dra-kubeletplugin", _OWN_MODULES["kubeletplugin"]
    names = [PurePosixPath(word).name for word in words[:4]]
    if "-m" in names[1:-1]:
        module = names[names.index("-m") + 1]
        return module, _OWN_MODULES.get(module.partition(".")[0], "")
    # An installed script comes after its interpreter.
    for name in names[: 2 if names and _INTERPRETER.match(names[0]) else 1]:
        if name in _PROGRAMS:
            return name, _PROGRAMS[name]
    return "", ""


def claimed(places: Places) -> Iterator[Held]:
    """What claims hold by the files on this node: journal, records of sharing, CDI specs."""
    boot = boot_folder(places.data_dir)
    journal = boot / "journal"
    entries = read_journal(journal)
    if isinstance(entries, Unread):
        if journal.exists():
            yield Held(f"the journal cannot be read: {entries.why}", "run this as root")
        entries = {}
    for uid, entry in entries.items():
        if isinstance(entry, Unread):
            yield Held(f"the journal's entry of claim {uid} cannot be read ({entry.why})", _UNINSTALL)
        elif entry.holds:
            gpus = tuple(dict.fromkeys(gpu for device in entry.devices for gpu in device.gpus))
            yield Held(f"by the journal, claim {entry.owner} holds it", _END, gpus)
    for file in _named(boot / "sharing", "*.json"):
        yield from _shared(file)
    for folder in _cdi_folders(places):
        for file in _named(folder, "*"):
            if file.suffix in _CDI_SUFFIXES:
                yield from _in_spec(file)


def _shared(file: Path) -> Iterator[Held]:
    what = f"by {file}, it is set up for shares"
    try:
        record = decode_json(read_bounded(file))
        yield Held(what, _END, tuple(map(str, record["gpus"])))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield Held(f"{file}, a record of shares, cannot be read ({error})", _UNINSTALL)


def _cdi_folders(places: Places) -> tuple[Path, ...]:
    folders = (*(places.host_root / name for name in _CDI_FOLDERS), places.cdi_dir)
    return tuple(dict.fromkeys(folder.resolve() for folder in folders))


def _in_spec(file: Path) -> Iterator[Held]:
    """The claim of a CDI spec; nothing for a static spec, as nvidia-ctk generates them for all GPUs."""
    # By CDI's convention the file is named by vendor and class.
    is_named_so = f"{_VENDOR}-{_CLASS}_" in file.name
    try:
        spec = _load(file)
        kind = str(spec["kind"])
        nodes = tuple(dict.fromkeys(_nodes(spec)))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        if is_named_so:
            yield Held(f"{file}, the CDI spec of a claim, cannot be read ({type(error).__name__})", _REMOVE)
        return
    vendor, _, name = kind.partition("/")
    if vendor.endswith(_VENDOR) and name == _CLASS:
        yield Held(f"{file}, the CDI spec of a claim, names it", f"{_END}; {_REMOVE}", nodes=nodes)


def _load(file: Path) -> Mapping[str, Any]:
    data = read_bounded(file)
    loaded = json.loads(data) if file.suffix == ".json" else yaml.safe_load(data)
    if not isinstance(loaded, dict):
        raise TypeError("it is not an object")
    return loaded


def _nodes(spec: Mapping[str, Any]) -> Iterator[str]:
    """The device nodes of single devices: those of the spec itself are the same for all GPUs."""
    for device in spec.get("devices") or ():
        for node in (device.get("containerEdits") or {}).get("deviceNodes") or ():
            yield str(node["path"])


def _named(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _processes(proc: Path) -> Iterable[Path]:
    try:
        return [folder for folder in proc.iterdir() if folder.name.isdecimal()]
    except OSError:
        return []


def _command(process: Path) -> list[str]:
    # Each word ends with a NUL, the last one too.
    return _text(process / "cmdline").split("\0")[:-1]


def _text(file: Path) -> str:
    """The beginning of a file of a process; empty if it has ended."""
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_COMMAND_BYTES).decode(errors="replace")
    except OSError:
        return ""
