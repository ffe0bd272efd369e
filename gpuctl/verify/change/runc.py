"""Containers of runc: the host's own files without the NVIDIA driver, and what CDI devices give.

All that is mounted for a container is mounted in a mount namespace of its own (``rootfs``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from driver.errors import NodeIncomplete
from driver.roots.places import PROGRAM_FOLDERS
from driver.roots.root import SLASH, Root
from envtest.embedded.node.cdi import ContainerView, DeviceNode, InjectionFailed, Mount, resolve
from gpuctl.demo import watchdog
from gpuctl.verify.change.control_groups import end_groups
from gpuctl.verify.change.program import ContainerFailed, StartedProgram
from gpuctl.verify.change.rootfs import Plan
from kubeletplugin.claims.cdi.hook import CACHE
from kubeletplugin.devices.host.driver_files import DriverFiles

ID_PREFIX = "gpu-dra-verify-"
"""The beginning of the ids of all containers."""

_PROGRAMS = ("runc", "crun")
_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/sbin", "/usr/libexec/crio")
# k3s and RKE2 bring a runc of their own, in a folder that is named by its content.
_BUNDLED = ("rancher/k3s/data/*/bin/runc", "rancher/rke2/data/*/bin/runc")
_RANCHER = Path("/var/lib")
_DELETE_SECONDS = 30.0
STATE = "state"
"""The folder with what runc knows of its containers."""

_ERRORS = "stderr"

# What containerd gives to a container that is not privileged.
_CAPABILITIES = tuple(
    f"CAP_{name}"
    for name in (
        "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
        "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
    )
)  # fmt: skip
_MOUNTS: tuple[dict[str, Any], ...] = (
    {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
    },
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
    },
    {
        "destination": "/dev/shm",  # noqa: S108 - the kernel's place for it
        "type": "tmpfs",
        "source": "shm",
        "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
    },
    {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": ["nosuid", "noexec", "nodev", "ro"],
    },
)
_MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_ANNOTATIONS = {
    f"io.kubernetes.cri.{name}": value
    for name, value in (
        ("container-type", "container"),
        ("container-name", "probe"),
        ("sandbox-name", "verify"),
        ("sandbox-namespace", "gpu-dra-verify"),
    )
}
"""Those that containerd sets; hooks of the driver read them."""


def ids_of(folder: Path) -> str:
    """The beginning of the ids of the containers of a folder; no other folder's begin so."""
    return f"{ID_PREFIX}{hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:8]}-"


def new_id(folder: Path) -> str:
    """An id for a container of a folder, which no other on this machine has."""
    return f"{ids_of(folder)}{uuid.uuid4().hex[:8]}"


def find_program() -> str | None:
    """The path of runc or crun on this machine, None if there is neither."""
    for name in _PROGRAMS:
        found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_FOLDERS))
        if found:
            return os.path.realpath(found)
    bundled = (path for pattern in _BUNDLED for path in sorted(_RANCHER.glob(pattern)))
    return next((str(path) for path in bundled if os.access(path, os.X_OK)), None)


def driver_paths(files: DriverFiles, root: Root) -> tuple[str, ...]:
    """The paths for this process of all that the NVIDIA driver installed below a root."""
    if root.seen != SLASH:
        return (str(root.seen),)
    paths = (
        *files.libraries,
        *(link.path for link in files.links),
        *files.binaries,
        *files.firmware,
        *files.sockets,
        *files.modules,
        *files.elsewhere.values(),
        *files.behind_scripts.values(),
        *(one.path for one in files.settings),
        # No container image has it. It makes device nodes that CDI did not give.
        *(f"/{folder}/nvidia-modprobe" for folder in PROGRAM_FOLDERS),
    )
    return tuple(dict.fromkeys(paths))


def resolved(cdi_dir: Path, device_ids: Sequence[str], host_root: Path = SLASH) -> ContainerView:
    """What CDI puts into a container with these devices; raises NodeIncomplete where a runtime could not."""
    try:
        return resolve(cdi_dir, device_ids, host_root)
    except InjectionFailed as error:
        raise NodeIncomplete(str(error), "prepare the claim again") from error


def environment(view: ContainerView) -> dict[str, str]:
    """The variables of a container in which Python finds the modules that this process finds."""
    modules = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path and Path(path).exists())
    own = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
    python = {"PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    # A variable of CDI wins over one of the container's own, as in a runtime.
    return {**own, **python, **view.env}


def linker_path(view: ContainerView) -> dict[str, str]:
    """LD_LIBRARY_PATH for the driver's libraries, as nvidia/cuda images have one; empty if a hook lists them.

    In a cluster the plugin brings nvidia-cdi-hook along, which writes the container's linker cache. Without a
    cache, a linker searches only the folders of its distribution.
    """
    if any(CACHE in hook.get("args", ()) for hook in view.hooks):
        return {}
    libraries = (PurePosixPath(path) for path in view.mounts)
    folders = dict.fromkeys(str(path.parent) for path in libraries if path.name.startswith("libcuda.so"))
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}


def oci_config(
    view: ContainerView, words: Sequence[str], variables: Mapping[str, str], root: Path, *, cgroup: str
) -> dict[str, Any]:
    """The OCI configuration of a container, as a runtime makes it of its own and of the edits of CDI.

    (pkg/cdi/container-edits.go of the CDI library)
    """
    nodes = [_node(node) for node in view.nodes.values()]
    allowed = [
        {"allow": True, "access": view.nodes[node["path"]].permissions}
        | {key: node[key] for key in ("type", "major", "minor")}
        for node in nodes
    ]
    of_cdi = [_mount(mount) for mount in view.mounts.values()]
    own = [mount for mount in _MOUNTS if mount["destination"] not in view.mounts]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0, "additionalGids": view.groups},
            "args": list(words),
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": "/",
            "capabilities": {kind: list(_CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": False},
        "hostname": "verify",
        # As many slashes as folders above: a mount goes before those below it.
        "mounts": sorted((*own, *of_cdi), key=lambda mount: mount["destination"].rstrip("/").count("/")),
        "hooks": _hooks(view.hooks),
        "annotations": _ANNOTATIONS,
        "linux": {
            # As it has no slash at its beginning: in cgroup v1 below the control group of this process; in v2
            # beside it, since a group with processes can have none with controllers below it.
            "cgroupsPath": cgroup,
            "namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")],
            "devices": nodes,
            "resources": {"devices": [{"allow": False, "access": "rwm"}, *allowed]},
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


def _node(node: DeviceNode) -> dict[str, Any]:
    major, minor = node.major, node.minor
    if major is None or minor is None:
        number = Path(node.host_path).stat().st_rdev
        major, minor = os.major(number), os.minor(number)
    block = stat.S_ISBLK(Path(node.host_path).stat().st_mode)
    return {"path": node.path, "type": "b" if block else "c", "major": major, "minor": minor}


def _mount(mount: Mount) -> dict[str, Any]:
    options = list(mount.options)
    if not {"bind", "rbind"}.intersection(options):
        options.append("bind")
    return {
        "destination": mount.container_path,
        "type": "bind",
        "source": mount.host_path,
        "options": options,
    }


def _hooks(given: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for hook in given:
        call = {key: hook[key] for key in ("path", "args", "env", "timeout") if key in hook}
        found.setdefault(hook["hookName"], []).append(call)
    return found


class RuncContainers:
    """Containers that runc starts; for root alone.

    ``hidden`` are the paths of the NVIDIA driver for this process; a container has none of them unless CDI
    mounts it. ``host_root`` is where this process sees the root of the host.
    """

    isolated = True

    def __init__(self, program: str, folder: Path, hidden: Sequence[str], host_root: Path = SLASH) -> None:
        self._program = program
        self._folder = folder.absolute()
        self._hidden = tuple(hidden)
        self._host_root = host_root
        self._started: list[_RuncContainer] = []

    def start(self, cdi_dir: Path, device_ids: Sequence[str], words: Sequence[str]) -> _RuncContainer:
        """Start a container; see ``Containers``."""
        view = resolved(cdi_dir, device_ids, self._host_root)
        mark = {watchdog.MARK: str(self._folder)}
        view.hooks = [_marked({**hook, "path": self._seen(hook["path"])}, mark) for hook in view.hooks]
        name = new_id(self._folder)
        bundle = self._folder / name
        for made in ("rootfs", "layers"):
            (bundle / made).mkdir(parents=True)
        variables = {**linker_path(view), **environment(view), **mark}
        config = oci_config(view, words, variables, bundle / "rootfs", cgroup=name)
        (bundle / "config.json").write_text(json.dumps(config))
        state = str(self._folder / STATE)
        run = (self._program, "--root", state, "run", "--bundle", str(bundle), name)
        needed = (*_system_folders(), *sys.path, sys.prefix, sys.base_prefix, words[0])
        Plan(str(bundle), tuple(filter(None, needed)), self._hidden, run).write(bundle / "plan.json")
        started = StartedProgram(
            (sys.executable, "-P", "-m", "gpuctl.verify.change.rootfs", str(bundle / "plan.json")),
            {**os.environ, "PYTHONPATH": environment(view)["PYTHONPATH"], **mark},
            bundle / _ERRORS,
        )
        container = _RuncContainer(started, bundle, (self._program, "--root", state))
        self._started.append(container)
        return container

    def close(self) -> None:
        """End all containers; raises ContainerFailed for the first that cannot be ended."""
        failed = []
        for container in self._started:
            try:
                container.end()
            except ContainerFailed as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _seen(self, path: str) -> str:
        below = self._host_root / path.lstrip("/")
        return str(below) if below.exists() else path


def _marked(hook: Mapping[str, Any], mark: Mapping[str, str]) -> Mapping[str, Any]:
    """A hook that has these variables; one without variables of its own has those of runc."""
    if "env" not in hook:
        return hook
    return {**hook, "env": [*hook["env"], *(f"{name}={value}" for name, value in mark.items())]}


def _system_folders() -> tuple[str, ...]:
    # On some systems /usr is a file system of its own, and these are links into it.
    return ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")


@dataclass(slots=True)
class _RuncContainer:
    _started: StartedProgram
    _bundle: Path
    _runc: tuple[str, ...]
    _ended: bool = field(default=False)

    def line(self, seconds: float) -> bytes:
        return self._started.line(seconds)

    def end(self) -> None:
        if self._ended:
            return
        if not self._started.ask_to_end():
            delete(self._runc, self._bundle.name)
        self._started.kill()
        # After a failed start runc may have left the control group, after a kill everything.
        delete(self._runc, self._bundle.name)
        if self._bundle.exists():
            shutil.rmtree(self._bundle)
        self._ended = True


def delete(runc: Sequence[str], container: str) -> None:
    """Kill a container and remove its control group; nothing happens if there is none. ContainerFailed."""
    try:
        done = subprocess.run(
            [*runc, "delete", "--force", container],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DELETE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ContainerFailed(
            f"the container {container} did not end within {_DELETE_SECONDS:g} s",
            "look for errors of the GPU with dmesg; a process that hangs in the kernel ends with a reboot",
        ) from error
    if done.returncode != 0:
        raise ContainerFailed(
            f"the container {container} cannot be removed: {done.stderr.strip()}",
            f"remove it with {' '.join(runc)} delete --force {container}",
        )
    end_control_groups(container)


def end_control_groups(prefix: str) -> None:
    """End what runc does not know of containers, by the beginning of their ids. Raises ContainerFailed."""
    left = end_groups(prefix)
    if left:
        raise ContainerFailed(
            f"the control group {left[0]} cannot be removed: a process in it does not end",
            "look for errors of the GPU with dmesg; a process that hangs in the kernel ends with a reboot",
        )


def left_behind(folder: Path) -> tuple[str, ...]:
    """The ids of the containers that runc still knows of an earlier process."""
    state = folder / STATE
    return tuple(sorted(path.name for path in state.iterdir())) if state.is_dir() else ()
