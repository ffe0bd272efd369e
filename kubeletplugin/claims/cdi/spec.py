"""Builds the CDI spec of a claim (Container Device Interface, containerEdits).

The same input gives the same bytes. Every edit is harmless if it is applied twice, since a kubelet up to
1.36.3 may pass a device to the runtime more than once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.roots.root import below
from kubeletplugin.claims.cdi.hook import Hook, driver_calls, links_call
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.devices.host.gpu_nodes import DeviceNode
from kubeletplugin.devices.host.library_files import Link
from kubeletplugin.kubelet.wire.names import CDI_CLASS, cdi_vendor

_SLASH = Path("/")

_LDCONFIG = "sbin/ldconfig"
_LIBCUDA_FOLDER = "NVIDIA_CTK_LIBCUDA_DIR"

_READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_NO_PROGRAMS = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Translates paths of this process into those of the host, where the container runtime runs.

    ``seen`` is a root as this process sees it, ``on_host`` the same root on the host. ``host_root`` is where
    this process sees the root of the host, None if that is not configured.
    """

    seen: Path
    on_host: Path
    host_root: Path | None = None

    def of(self, path: str) -> str:
        """The host's path of a file below ``seen`` or ``host_root``; any other path stays as it is."""
        for here, there in ((self.seen, self.on_host), (self.host_root or _SLASH, _SLASH)):
            seen, on_host = str(here).rstrip("/"), str(there).rstrip("/")
            if seen != on_host and path.startswith(f"{seen}/"):
                return on_host + path[len(seen) :]
        return path

    def below_root(self, path: str) -> str:
        """The host's path of the file at ``path`` below ``seen``."""
        return str(self.on_host).rstrip("/") + path

    @property
    def seen_host(self) -> Path | None:
        """Where this process sees the host's own files, None if it does not."""
        return self.seen if self.on_host == _SLASH else self.host_root


@dataclass(frozen=True, slots=True)
class CdiMount:
    """A folder of the host that a device adds to the container; both paths are absolute.

    ``is_writable`` is whether the container can create files in it. Sockets in it work either way.
    """

    host_path: str
    container_path: str
    is_writable: bool = True


@dataclass(frozen=True, slots=True)
class CdiHook:
    """A program of the host that the runtime calls."""

    # OCI's name for the moment of the call, such as createRuntime.
    name: str
    path: str
    # They begin with the name of the program, as argv does.
    arguments: tuple[str, ...]
    environment: tuple[str, ...]
    # The runtime kills the program after this time.
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container gets with a device."""

    # Each partition of a GPU has the GPU's node; a container with several of them gets the node once.
    nodes: tuple[DeviceNode, ...] = ()
    # Lines NAME=value.
    variables: tuple[str, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    # Whether the container also needs the NVIDIA driver's control nodes and files.
    needs_driver: bool = True
    # The names of the driver's programs that the container must not get.
    without_programs: frozenset[str] = frozenset()
    links: tuple[Link, ...] = ()
    hooks: tuple[CdiHook, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        """The edits of both."""
        return Edits(
            self.nodes + other.nodes,
            self.variables + other.variables,
            self.mounts + other.mounts,
            self.needs_driver or other.needs_driver,
            self.without_programs | other.without_programs,
            self.links + other.links,
            self.hooks + other.hooks,
        )


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """One device of the spec: its CDI name and its edits."""

    name: str
    edits: Edits


@dataclass(frozen=True, slots=True)
class FileEdits:
    """The edits for the driver's files, which are the same for all GPUs and therefore built once."""

    # JSON text: members of an object, each after a comma, or nothing.
    members: str
    variables: tuple[str, ...] = ()
    # Makes the links of devices.
    hook: Hook | None = None


NO_FILES = FileEdits("")


def file_edits(
    files: DriverFiles,
    host: HostPaths,
    hook: Hook | None = None,
    without_programs: frozenset[str] = frozenset(),
) -> FileEdits:
    """The mounts and hooks for the driver's files, without the programs of these names."""
    binaries = tuple(path for path in files.binaries if PurePosixPath(path).name not in without_programs)
    edits = {
        "mounts": _mounts(replace(files, binaries=binaries), host, hook),
        "hooks": _hooks(files, host, hook),
    }
    members = "".join(f',"{name}":{_json(value)}' for name, value in edits.items() if value)
    folders = ":".join(files.main_folders)
    return FileEdits(members, (f"{_LIBCUDA_FOLDER}={folders}",) if folders else (), hook)


def build_spec(
    devices: Sequence[CdiDevice],
    control: Sequence[DeviceNode],
    files: FileEdits,
    host: HostPaths,
    driver: str = DRIVER_NAME,
) -> bytes:
    """The spec file of a claim, in the lowest CDI version that it needs, as JSON.

    ``control`` and ``files`` are empty for a claim whose devices do not need the NVIDIA driver. ``driver`` is
    the DRA driver.
    """
    # Many CUDA images set this variable to "all", by which NVIDIA's container runtime adds every GPU. The
    # value void stops it from adding any.
    edits: dict[str, Any] = {"env": [*files.variables, "NVIDIA_VISIBLE_DEVICES=void"]}
    if control:
        edits["deviceNodes"] = [_node(node, host) for node in control]
    spec: dict[str, Any] = {
        "kind": f"{cdi_vendor(driver)}/{CDI_CLASS}",
        "devices": [
            {"name": device.name, "containerEdits": _device_edits(device.edits, host, files.hook)}
            for device in devices
        ],
        "containerEdits": edits,
    }
    text = _json({"cdiVersion": lowest_version(spec), **spec})
    # containerEdits is the last member, so the text for the driver's files goes before the closing braces.
    return f"{text[:-2]}{files.members}}}}}\n".encode()


def _device_edits(edits: Edits, host: HostPaths, hook: Hook | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if edits.nodes:
        found["deviceNodes"] = [_node(node, host) for node in edits.nodes]
    if edits.variables:
        found["env"] = list(edits.variables)
    if edits.mounts:
        found["mounts"] = [
            _mount(one.host_path, one.container_path, ["rw" if one.is_writable else "ro", *_NO_PROGRAMS])
            for one in edits.mounts
        ]
    calls = [_hook(one) for one in edits.hooks]
    if edits.links and hook is not None:
        calls.append(links_call(hook, edits.links))
    if calls:
        found["hooks"] = calls
    return found


def _hook(hook: CdiHook) -> dict[str, Any]:
    return {
        "hookName": hook.name,
        "path": hook.path,
        "args": list(hook.arguments),
        "env": list(hook.environment),
        "timeout": hook.timeout_seconds,
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def lowest_version(spec: Mapping[str, Any]) -> str:
    """The lowest CDI version whose features cover the spec (SPEC.md, released versions)."""
    # A runtime rejects a whole file whose version is newer than it knows, or older than its features need.
    # Version 0.5.0 added hostPath, and device names that begin with a digit, as claim UIDs may.
    names = [device["name"] for device in spec["devices"]]
    edits = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    nodes = [node for edit in edits for node in edit.get("deviceNodes", ())]
    if any("hostPath" in node for node in nodes) or any(not name[0].isalpha() for name in names):
        return "0.5.0"
    return "0.3.0"


def _node(node: DeviceNode, host: HostPaths) -> dict[str, Any]:
    host_path = host.of(node.below_root)
    entry: dict[str, Any] = {"path": node.path}
    if host_path != node.path:
        entry["hostPath"] = host_path
    # Type, major and minor keep the device allowed when the cgroup is rewritten after a systemd reload.
    return {**entry, "type": "c", "major": node.major, "minor": node.minor, "permissions": "rw"}


def _mount(host_path: str, container_path: str, options: list[str]) -> dict[str, Any]:
    return {"hostPath": host_path, "containerPath": container_path, "options": options}


def _mounts(files: DriverFiles, host: HostPaths, hook: Hook | None) -> list[dict[str, Any]]:
    mounts = [
        _mount(host.below_root(files.mounted(path)), path, _READ_ONLY)
        for path in (*files.libraries, *files.modules, *files.binaries, *files.firmware)
    ]
    mounts += [_mount(host.below_root(one.path), one.in_container, _READ_ONLY) for one in files.settings]
    mounts += [_mount(host.below_root(path), path, _NO_PROGRAMS) for path in files.sockets]
    if hook is None:
        # Without the hook nobody makes the links: each becomes a mount of the file that it leads to.
        mounts += [
            _mount(host.below_root(files.below_root(link.file)), link.path, _READ_ONLY)
            for link in files.links
        ]
    return mounts


def _hooks(files: DriverFiles, host: HostPaths, hook: Hook | None) -> list[dict[str, Any]]:
    if hook is None:
        return []
    # The hook fails the container if the host has no ldconfig. If the host's files are not seen from here,
    # it is assumed to have one.
    seen = host.seen_host
    has_ldconfig = seen is None or below(seen, _LDCONFIG) is not None
    return driver_calls(hook, files, has_linker_cache=has_ldconfig)


MEMORY_HOOK = "gpu-memory-hook"

WAITS_SECONDS = 30
"""How long the hook waits for the plugin, which may be restarting or waiting for memory itself.

It is long, since a container whose hook fails has failed, and with restartPolicy Never so has its pod.
"""

TIMEOUT_SECONDS = 35
"""When the runtime kills the hook: after the hook's own timeout, which gives a reason.

The kubelet waits two minutes for its runtime (runtimeRequestTimeout).
"""

# A hook without an environment inherits the runtime's, whose Go variables could change how it behaves.
_ENVIRONMENT = ("GOTRACEBACK=none",)


@dataclass(frozen=True, slots=True)
class MemoryHook:
    """gpu-memory-hook, and the folder of the sockets that it connects to, both as paths on the host.

    It keeps a container from starting without its limit, and for MPS one in which CUDA would not show all of
    its devices. A createRuntime hook runs on the host, in the runtime's own namespaces, once the container
    has its control group and before any of its processes runs (OCI runtime specification). If it fails, the
    container fails.
    """

    program: str
    sockets: str


def memory_sockets(data_dir: Path) -> Path:
    """The folder of the sockets, below the plugin's own folder."""
    return data_dir / "memory" / "sockets"


def memory_hook_edits(claim_uid: str, cdi_device: str, hook: MemoryHook) -> Edits:
    """The edits by which the runtime calls the hook before a container of the claim starts with this device.

    A container with several devices of a claim calls it for each. Calling it twice for one is harmless.
    """
    arguments = (
        MEMORY_HOOK,
        f"--sockets={hook.sockets}",
        f"--claim={claim_uid}",
        f"--device={cdi_device}",
        f"--seconds={WAITS_SECONDS}",
    )
    call = CdiHook("createRuntime", hook.program, arguments, _ENVIRONMENT, TIMEOUT_SECONDS)
    return Edits(hooks=(call,), needs_driver=False)


def mps_hook(request: str, pipes: str, hook: MemoryHook) -> CdiHook:
    """The hook that looks, before a container starts, whether MPS hides one of its devices.

    A process is the client of one daemon, and sees only that daemon's devices. ``pipes`` is the host's folder
    with the pipes of the device's daemon, ``request`` the path of the metadata of its request.
    """
    arguments = (MEMORY_HOOK, "mps", f"--request={request}", f"--pipes={pipes}")
    return CdiHook("createRuntime", hook.program, arguments, _ENVIRONMENT, TIMEOUT_SECONDS)
