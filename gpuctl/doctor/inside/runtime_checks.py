"""Checks of what lets containers get GPUs: control groups, the container runtime, the folder of CDI specs."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Finding, fail, ok, skipped, warn
from gpuctl.doctor.inside.runtime_files import DEFAULT_FOLDERS
from gpuctl.doctor.inside.seen import NodeSeen, RuntimeConfig
from gpuctl.doctor.outside.seen import Unread

_NOT_SEEN = "no configuration of containerd or CRI-O is seen below {}"


def _cgroups(seen: NodeSeen) -> Finding:
    if seen.cgroups is None:
        return skipped(f"no control groups are seen below {seen.places.host_root}")
    if seen.cgroups == 1:
        return warn(
            "the node has control groups of version 1",
            "Kubernetes gives them up: use a system with version 2",
        )
    return ok("control groups are of version 2")


def _runtime(seen: NodeSeen) -> Finding:
    if not seen.runtimes:
        return skipped(
            _NOT_SEEN.format(seen.places.host_root),
            "run `gpuctl doctor --local` as root of the node, or give --host-root",
        )
    wrong = [f"{one.file}: {one.wrong}" for one in seen.runtimes if one.wrong]
    if wrong:
        return warn(
            "a configuration of the container runtime cannot be read", "correct it, or run as root", wrong
        )
    off = [one.file for one in seen.runtimes if one.cdi is False]
    if off:
        return fail(
            f"CDI is off in {', '.join(off)}: containers get no GPU",
            "set enable_cdi = true, and restart containerd",
        )
    silent = [one.file for one in seen.runtimes if one.cdi is None and not one.since_2]
    if silent:
        return warn(
            f"{', '.join(silent)} does not say whether CDI is on; it is off in containerd 1.7",
            "set enable_cdi = true, unless it is containerd 2.0 or newer",
        )
    return ok(f"CDI is on by {', '.join(one.file for one in seen.runtimes)}")


def _folder(seen: NodeSeen) -> Finding:
    folder = seen.places.cdi_dir
    if isinstance(seen.cdi_writable, Unread):
        return fail(seen.cdi_writable.why, "mount the folder that the runtime reads, and set --cdi-dir to it")
    if not seen.cdi_writable:
        return fail(f"{folder} cannot be written to", "mount it writable: no claim can be prepared")
    told = [one for one in seen.runtimes if not one.wrong and not _reads(one, str(folder))]
    if told:
        return fail(
            f"the container runtime does not read {folder}",
            "set --cdi-dir of the plugin to one of the folders that the runtime reads",
            [f"{one.file}: {', '.join(one.folders or DEFAULT_FOLDERS)}" for one in told],
        )
    if not seen.runtimes:
        return ok(f"{folder} can be written to; whether the runtime reads it is not seen from here")
    return ok(f"{folder} can be written to, and the container runtime reads it")


def _reads(runtime: RuntimeConfig, folder: str) -> bool:
    folders = DEFAULT_FOLDERS if runtime.folders is None else runtime.folders
    return _plain(folder) in map(_plain, folders)


def _plain(folder: str) -> str:
    """A folder by one of its names: /var/run is a link to /run."""
    return folder.rstrip("/").replace("/var/run/", "/run/", 1)


RUNTIME_CHECKS: tuple[Check[NodeSeen], ...] = (
    Check("cgroups", "the version of control groups", "never; warns of version 1", _cgroups),
    Check(
        "runtime-cdi",
        "CDI in the configuration of containerd or CRI-O, of k3s, RKE2, k0s and MicroK8s as well",
        "it is off; warns where it is not said, and the file is not of containerd 2",
        _runtime,
    ),
    Check(
        "cdi-folder",
        "the folder of CDI specs",
        "it is missing, cannot be written to, or the runtime does not read it",
        _folder,
    ),
)
