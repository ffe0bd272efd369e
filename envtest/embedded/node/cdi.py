"""Resolves CDI devices into what a container gets, as a container runtime does (CDI SPEC.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envtest.embedded.node.cdi_specs import read_specs


class InjectionFailed(Exception):
    """A runtime cannot put a CDI device into a container."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node: its path in the container, and the node of the host behind it.

    ``permissions`` are those of the container's processes in the words of control groups.
    """

    path: str
    host_path: str
    major: int | None
    minor: int | None
    permissions: str = "rwm"


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host in the container."""

    container_path: str
    host_path: str
    options: tuple[str, ...]


@dataclass(slots=True)
class ContainerView:
    """What CDI puts into a container. A later edit of the same path or variable replaces an earlier one."""

    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    hooks: list[Mapping[str, Any]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)


def resolve(folder: Path, device_ids: Sequence[str], host_root: Path = Path("/")) -> ContainerView:
    """Apply the edits of these devices, ``vendor/class=name``, from the specs in ``folder``.

    The edits of a spec itself come once, before those of its first device. ``host_root`` is where this
    process sees the root of the host; the paths of the host in the answer are those that this process sees.
    Raises InjectionFailed where a runtime could not start the container: an unknown device, a device that two
    specs have, a device of an invalid spec, or a path of the host that is not there.
    """
    specs = read_specs(folder)
    missing = [one for one in dict.fromkeys(device_ids) if one not in specs.devices]
    if missing:
        why = f" (ignored: {'; '.join(specs.ignored)})" if specs.ignored else ""
        raise InjectionFailed(f"unresolvable CDI devices {', '.join(missing)}{why}")
    view = ContainerView()
    applied: list[Mapping[str, Any]] = []
    for device_id in dict.fromkeys(device_ids):
        spec, device = specs.devices[device_id]
        if not any(spec is one for one in applied):
            applied.append(spec)
            _apply(view, spec.get("containerEdits") or {}, host_root)
        _apply(view, device.get("containerEdits") or {}, host_root)
    return view


def _apply(view: ContainerView, edits: Mapping[str, Any], host_root: Path) -> None:
    for node in edits.get("deviceNodes", ()):
        path, numbers = node["path"], (node.get("major"), node.get("minor"))
        host_path = _on_host(node.get("hostPath") or path, host_root)
        # CDI's library takes all permissions where a spec names none.
        view.nodes[path] = DeviceNode(path, host_path, *numbers, node.get("permissions") or "rwm")
    for mount in edits.get("mounts", ()):
        path = mount["containerPath"]
        host_path = _on_host(mount["hostPath"], host_root)
        view.mounts[path] = Mount(path, host_path, tuple(mount.get("options", ())))
    for variable in edits.get("env", ()):
        # A value may have further equal signs.
        name, _, value = variable.partition("=")
        view.env[name] = value
    view.hooks.extend(edits.get("hooks", ()))
    view.groups.extend(edits.get("additionalGids", ()))


def _on_host(path: str, host_root: Path) -> str:
    # A folder that only this process has, as a temporary one, is not below the host's root.
    for seen in (host_root / path.lstrip("/"), Path(path)):
        if seen.exists():
            return str(seen)
    raise InjectionFailed(f"{path} of a CDI spec is not there")
