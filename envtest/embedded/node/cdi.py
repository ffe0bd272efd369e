"""Resolves CDI devices into what a container gets, as a container runtime does (CDI SPEC.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driver.errors import NodeIncomplete


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node: its path in the container, and the node of the host behind it."""

    path: str
    host_path: str
    major: int | None
    minor: int | None


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


def resolve(folder: Path, device_ids: Sequence[str]) -> ContainerView:
    """Apply the edits of these devices, ``vendor/class=name``, from the specs in ``folder``.

    The edits of a spec itself come once, before those of its first device. Raises NodeIncomplete where
    a runtime could not start the container: an unknown device, a device that two specs have, or a path
    of the host that is not there.
    """
    specs = list(_specs_in(folder))
    view = ContainerView()
    applied: list[Mapping[str, Any]] = []
    for device_id in dict.fromkeys(device_ids):
        kind, _, name = device_id.partition("=")
        found = [
            (spec, device)
            for spec in specs
            for device in spec["devices"]
            if (spec["kind"], device["name"]) == (kind, name)
        ]
        # A runtime ignores a device that two specs of equal priority define.
        if len(found) != 1:
            raise NodeIncomplete(
                f"{len(found)} CDI specs in {folder} have the device {device_id}", "prepare the claim anew"
            )
        spec, device = found[0]
        if not any(spec is one for one in applied):
            applied.append(spec)
            _apply(view, spec.get("containerEdits") or {})
        _apply(view, device.get("containerEdits") or {})
    return view


def _specs_in(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("*.json")):
        # Between the listing and the read, the plugin may have removed the spec of another claim.
        with suppress(FileNotFoundError):
            yield json.loads(path.read_text())


def _apply(view: ContainerView, edits: Mapping[str, Any]) -> None:
    for node in edits.get("deviceNodes", ()):
        host_path = _on_host(node.get("hostPath") or node["path"])
        view.nodes[node["path"]] = DeviceNode(node["path"], host_path, node.get("major"), node.get("minor"))
    for mount in edits.get("mounts", ()):
        path = mount["containerPath"]
        view.mounts[path] = Mount(path, _on_host(mount["hostPath"]), tuple(mount.get("options", ())))
    for variable in edits.get("env", ()):
        # A value may have further equal signs.
        name, _, value = variable.partition("=")
        view.env[name] = value
    view.hooks.extend(edits.get("hooks", ()))


def _on_host(path: str) -> str:
    if not Path(path).exists():
        raise NodeIncomplete(f"{path} of a CDI spec is not there", "prepare the claim anew")
    return path
