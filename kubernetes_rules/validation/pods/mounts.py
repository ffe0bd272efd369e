"""Checks where containers have the volumes of their pod: as folders and as block devices."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import (
    FieldError,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from kubernetes_rules.validation.pods.paths import backstep_errors, local_path_errors

Object = dict[str, Any]

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY = ("Disabled", "Enabled", "IfPossible")


def mount_errors(container: Object, volumes: dict[str, Object], path: str) -> list[FieldError]:
    """The errors of ``volumeMounts``; ``volumes`` are those of the pod that are right, by name."""
    devices = {
        one.get("name") or "": one.get("devicePath") or "" for one in container.get("volumeDevices") or []
    }
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        here, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        if name not in volumes:
            errors.append(not_found(f"{here}.name", name))
        if not target:
            errors.append(required(f"{here}.mountPath"))
        if target in seen:
            errors.append(invalid(f"{here}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in devices:
            errors.append(invalid(f"{here}.name", name, "must not already exist in volumeDevices"))
        if target in devices.values():
            text = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{here}.mountPath", target, text))
        errors += _sub_path_errors(mount, here, path)
        errors += _propagation_errors(mount, container, path)
    return errors


def device_errors(container: Object, volumes: dict[str, Object], path: str) -> list[FieldError]:
    """The errors of ``volumeDevices``."""
    mounts = {
        one.get("name") or "": one.get("mountPath") or "" for one in container.get("volumeMounts") or []
    }
    errors: list[FieldError] = []
    names: set[str] = set()
    targets: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or []):
        here, name, target = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        volume = volumes.get(name)
        checks = (
            (bool(name), required(f"{here}.name")),
            (name not in names, invalid(f"{here}.name", name, "must be unique")),
            (volume is None or _is_block(volume), invalid(f"{here}.name", name, _NO_BLOCK)),
            (volume is not None, not_found(f"{here}.name", name)),
            (bool(target), required(f"{here}.devicePath")),
            (target not in targets, invalid(f"{here}.devicePath", target, "must be unique")),
            (not backstep_errors(target, ""), invalid(f"{here}.devicePath", target, _NO_BACKSTEPS)),
            (name not in mounts, invalid(f"{here}.name", name, "must not already exist in volumeMounts")),
            (target not in mounts.values(), invalid(f"{here}.devicePath", target, _MOUNTED)),
        )
        errors += [error for right, error in checks if not right]
        if not backstep_errors(target, ""):
            targets.add(target)
        if name:
            names.add(name)
    return errors


_NO_BLOCK = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
_NO_BACKSTEPS = "can not contain backsteps ('..')"
_MOUNTED = "must not already exist as a path in volumeMounts"


def _is_block(volume: Object) -> bool:
    return volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None


def _sub_path_errors(mount: Object, here: str, path: str) -> list[FieldError]:
    """The errors of the part of a volume that is mounted; Kubernetes names the list, not the mount."""
    fixed, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    errors = local_path_errors(fixed, f"{path}.subPath") if fixed else []
    if expression:
        if fixed:
            text = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(f"{here}.subPathExpr", expression, text))
        errors += local_path_errors(expression, f"{path}.subPathExpr")
    return errors


def _propagation_errors(mount: Object, container: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    propagation, read_only = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        here = f"{path}.mountPropagation"
        if propagation not in _PROPAGATIONS:
            errors.append(not_supported(here, propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(here, text))
    here = f"{path}.recursiveReadOnly"
    if read_only in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.append(forbidden(here, "may only be specified when readOnly is true"))
        if propagation is not None and propagation != "None":
            text = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden(here, text))
    elif read_only is not None and read_only != "Disabled":
        errors.append(not_supported(here, read_only, _READ_ONLY))
    return errors
