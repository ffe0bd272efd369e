"""Resolves CDI devices into what a container gets, as a container runtime does (CDI SPEC.md).

Specs that a runtime ignores are ignored here. Go: tags.cncf.io/container-device-interface, pkg/cdi and
specs-go. Annotations are not validated. A node has one folder of specs, so folders have no priorities.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Json = Mapping[str, Any]

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""The known versions of specs, the oldest first."""

_EXTENSIONS = (".json", ".yaml")
# All scalars stay text, as Go reads them into fields of type string; the loader in C is ten times as fast.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_EDITS = {
    "env": ["text"],
    "deviceNodes": [
        {
            **dict.fromkeys(("path", "hostPath", "type", "permissions"), "text"),
            **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), "number"),
        }
    ],
    "netDevices": [{"hostInterfaceName": "text", "name": "text"}],
    "hooks": [{"hookName": "text", "path": "text", "args": ["text"], "env": ["text"], "timeout": "number"}],
    "mounts": [{"hostPath": "text", "containerPath": "text", "options": ["text"], "type": "text"}],
    "intelRdt": {
        **dict.fromkeys(("closID", "l3CacheSchema", "memBwSchema"), "text"),
        "schemata": ["text"],
        "enableMonitoring": "any",
    },
    "additionalGids": ["number"],
}
_SPEC: dict[str, Any] = {
    "cdiVersion": "text",
    "kind": "text",
    "annotations": "any",
    "containerEdits": _EDITS,
    "devices": [{"name": "text", "annotations": "any", "containerEdits": _EDITS}],
}
"""The fields of a spec: a kind of scalar, a list of such, or a map of fields."""

_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_KIND_PART = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


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
        # CDI's library looks at the node on the host only for what the spec does not say (fillMissingInfo).
        is_complete = bool(node.get("type") and node.get("major"))
        host_path = _on_host(node.get("hostPath") or path, host_root, may_be_missing=is_complete)
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


def _on_host(path: str, host_root: Path, *, may_be_missing: bool = False) -> str:
    # A folder that only this process has, as a temporary one, is not below the host's root.
    for seen in (host_root / path.lstrip("/"), Path(path)):
        if seen.exists():
            return str(seen)
    if may_be_missing:
        return path
    raise InjectionFailed(f"{path} of a CDI spec is not there")


class SpecInvalid(Exception):
    """A runtime ignores the spec; the message says why."""


@dataclass(frozen=True, slots=True)
class Specs:
    """The devices of a folder by their qualified names, and why other specs and devices are ignored."""

    devices: Mapping[str, tuple[Json, Json]]
    """The spec and its device, by ``vendor/class=name``."""
    ignored: Sequence[str]


def read_specs(folder: Path) -> Specs:
    """The specs in a folder; of a device that two specs have, neither counts."""
    found: dict[str, list[tuple[Path, Json, Json]]] = {}
    ignored = []
    for path in sorted(folder.iterdir() if folder.is_dir() else ()):
        if path.suffix not in _EXTENSIONS or path.is_dir():
            continue
        try:
            spec = read_spec(path)
        except FileNotFoundError:
            # The driver has removed the spec of another claim since the folder was listed.
            continue
        except SpecInvalid as error:
            ignored.append(f"{path}: {error}")
            continue
        for device in spec["devices"]:
            found.setdefault(f"{spec['kind']}={device['name']}", []).append((path, spec, device))
    devices = {}
    for name, ((path, spec, device), *others) in found.items():
        if others:
            ignored.append(f'conflicting device "{name}" (specs "{path}", "{others[0][0]}")')
        else:
            devices[name] = spec, device
    return Specs(devices, ignored)


def read_spec(path: Path) -> Json:
    """The spec in a file; raises SpecInvalid, and FileNotFoundError where the file is gone."""
    data = path.read_bytes()
    try:
        # The library reads JSON as YAML, too; json is far faster.
        given = json.loads(data) if path.suffix == ".json" else yaml.load(data, _LOADER)  # noqa: S506 - builds text alone
    except (ValueError, yaml.YAMLError) as error:
        raise SpecInvalid(f"failed to parse CDI Spec: {' '.join(str(error).split())}") from error
    if not given:
        raise SpecInvalid("no Spec data")
    spec: Json = _typed(given, _SPEC, "spec")
    _check(spec)
    return spec


def _typed(value: Any, shape: Any, place: str) -> Any:
    """A value in the type of its field; raises SpecInvalid for another type or an unknown field."""
    match shape:
        case "text" if isinstance(value, str | int | float):
            return str(value)
        case "number":
            return _number(value, place)
        case "any":
            return value
        case [inner] if isinstance(value, list):
            return [_typed(one, inner, f"{place}[{index}]") for index, one in enumerate(value)]
        case dict() if isinstance(value, dict):
            unknown = value.keys() - shape.keys()
            if unknown:
                raise SpecInvalid(f"{place} has no field {min(map(str, unknown))}")
            # An empty value, as null, leaves its field out.
            return {
                key: _typed(one, shape[key], f"{place}.{key}")
                for key, one in value.items()
                if one not in (None, "")
            }
    raise SpecInvalid(f"{place} is no {shape if isinstance(shape, str) else type(shape).__name__}")


def _number(value: Any, place: str) -> int:
    text = str(value)
    try:
        # In YAML a number that begins with 0 is octal, as modes of files are written.
        octal = text.startswith("0") and text.isdecimal()
        return int(text, 8 if octal else 0)
    except ValueError as error:
        raise SpecInvalid(f"{place} is no number") from error


def _check(spec: Json) -> None:
    """Raises SpecInvalid."""
    version, kind = spec.get("cdiVersion", "").removeprefix("v"), spec.get("kind", "")
    if version not in VERSIONS:
        raise SpecInvalid(f'invalid version "{spec.get("cdiVersion", "")}"')
    least = least_version(spec)
    if VERSIONS.index(version) < VERSIONS.index(least):
        raise SpecInvalid(f"the spec version must be at least v{least}")
    vendor, _, name = kind.partition("/")
    if not _KIND_PART.fullmatch(vendor) or not _KIND_PART.fullmatch(name):
        raise SpecInvalid(f'invalid kind "{kind}"')
    names = [one.get("name", "") for one in spec.get("devices") or ()]
    if not names:
        raise SpecInvalid("invalid spec, no devices")
    for index, one in enumerate(names):
        if not _DEVICE_NAME.fullmatch(one):
            raise SpecInvalid(f'invalid device name "{one}"')
        if one in names[:index]:
            raise SpecInvalid(f'invalid spec, multiple device "{one}"')
        if not any((spec["devices"][index].get("containerEdits") or {}).values()):
            raise SpecInvalid(f'invalid device "{one}", empty device edits')
    for edits in _all_edits(spec):
        _check_edits(edits)


def _check_edits(edits: Json) -> None:
    for one in (edits, *edits.get("hooks", ())):
        for variable in one.get("env", ()):
            if variable.find("=") <= 0:
                raise SpecInvalid(f'invalid environment variable "{variable}"')
    for node in edits.get("deviceNodes", ()):
        _check_node(node)
    for hook in edits.get("hooks", ()):
        if hook.get("hookName") not in _HOOKS:
            raise SpecInvalid(f'invalid hook name "{hook.get("hookName", "")}"')
        if not hook.get("path"):
            raise SpecInvalid(f'invalid hook "{hook["hookName"]}" with empty path')
    if not all(mount.get("hostPath") for mount in edits.get("mounts", ())):
        raise SpecInvalid("invalid mount, empty host path")
    if not all(mount.get("containerPath") for mount in edits.get("mounts", ())):
        raise SpecInvalid("invalid mount, empty container path")


def _check_node(node: Json) -> None:
    path, permissions = node.get("path"), node.get("permissions", "")
    if not path:
        raise SpecInvalid("invalid (empty) device path")
    if node.get("type", "c") not in ("b", "c", "u", "p"):
        raise SpecInvalid(f'device "{path}": invalid type "{node["type"]}"')
    if permissions != "none" and permissions.strip("rwm"):
        raise SpecInvalid(f'device "{path}": invalid permissions "{permissions}"')


def least_version(spec: Json) -> str:
    """The oldest version that has all that a spec uses (Go: MinimumRequiredVersion in specs-go)."""
    edits, devices = list(_all_edits(spec)), spec.get("devices") or ()
    intel = [one["intelRdt"] for one in edits if one.get("intelRdt")]
    nodes = [node for one in edits for node in one.get("deviceNodes", ())]
    mounts = [mount for one in edits for mount in one.get("mounts", ())]
    annotated = any(one.get("annotations") for one in (spec, *devices))
    features = {
        "1.1.0": any(one.get("netDevices") for one in edits)
        or any(one.get("schemata") or one.get("enableMonitoring") in (True, "true") for one in intel),
        "0.7.0": bool(intel) or any(one.get("additionalGids") for one in edits),
        "0.6.0": annotated or "." in spec.get("kind", "").partition("/")[2],
        "0.5.0": any(one.get("name", "")[:1].isdigit() for one in devices)
        or any(one.get("hostPath") for one in nodes),
        "0.4.0": any(one.get("type") for one in mounts),
    }
    return next((version for version, used in features.items() if used), "0.3.0")


def _all_edits(spec: Json) -> Iterator[Json]:
    for one in (spec, *(spec.get("devices") or ())):
        yield one.get("containerEdits") or {}
