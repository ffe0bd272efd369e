"""Checks the volumes of a pod, and where containers mount them or use them as block devices."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import dns_label, dns_subdomain

Object = dict[str, Any]

_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
_SECOND_PATHS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Sources that the error message for a second source spells in another way."""
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_MOST_MODE = 0o777
_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY = ("Disabled", "Enabled", "IfPossible")


def volume_errors(
    volumes: list[Object], pod: Object, path: str
) -> tuple[dict[str, Object], list[FieldError]]:
    """The valid volumes, by name, and the errors of the others; ``pod`` is the pod's metadata."""
    found: dict[str, Object] = {}
    errors: list[FieldError] = []
    pod_name = pod.get("name") or ""
    # The claim of an ephemeral volume is named POD-VOLUME.
    made = {f"{pod_name}-{one.get('name') or ''}" for one in volumes if one.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        here, name = f"{path}[{index}]", volume.get("name") or ""
        wrong = _source_errors(volume, pod_name, here)
        wrong += (
            field.all_invalid(f"{here}.name", name, dns_label(name, "characters"))
            if name
            else [field.required(f"{here}.name")]
        )
        if name in found:
            wrong.append(field.duplicate(f"{here}.name", name))
        if not wrong:
            found[name] = volume
        errors += wrong
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if volume.get("persistentVolumeClaim") is not None and pod_name and claim in made:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(field.invalid(f"{here}.persistentVolumeClaim.claimName", claim, text))
    return found, errors


def pull_policy_errors(policy: str, path: str) -> list[FieldError]:
    """The errors of a pull policy."""
    if not policy:
        return [field.required(path)]
    return [] if policy in _PULL_POLICIES else [field.not_supported(path, policy, _PULL_POLICIES)]


def _source_errors(volume: Object, pod_name: str, path: str) -> list[FieldError]:
    given = [name for name in _SOURCES if volume.get(name) is not None]
    if not given:
        return [field.required(path, "must specify a volume type")]
    errors = _content_errors(given[0], volume[given[0]], f"{path}.{given[0]}")
    text = "may not specify more than 1 volume type"
    errors += [field.forbidden(f"{path}.{_SECOND_PATHS.get(name, name)}", text) for name in given[1:]]
    name = volume.get("name") or ""
    if given[0] == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        wrong = dns_subdomain(claim, "characters")
        errors += field.all_invalid(f"{path}.name", name, [f'PVC name "{claim}": {text}' for text in wrong])
    return errors


def _content_errors(kind: str, source: Object, path: str) -> list[FieldError]:
    match kind:
        case "emptyDir":
            size = Quantity.parse(str(source.get("sizeLimit") or "0"))
            text = "SizeLimit field must be a valid resource quantity"
            return [field.forbidden(f"{path}.sizeLimit", text)] if size.value < 0 else []
        case "hostPath":
            return _host_path_errors(source, path)
        case "secret":
            return _files_errors(source, "secretName", path)
        case "configMap":
            return _files_errors(source, "name", path)
        case "persistentVolumeClaim":
            return [] if source.get("claimName") else [field.required(f"{path}.claimName")]
        case "image":
            errors = [] if source.get("reference") else [field.required(f"{path}.reference")]
            return errors + pull_policy_errors(source.get("pullPolicy") or "", f"{path}.pullPolicy")
    return []


def _host_path_errors(source: Object, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [field.required(f"{path}.path")]
    errors = _backstep_errors(source["path"], f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(field.not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def _files_errors(source: Object, name: str, path: str) -> list[FieldError]:
    """The errors of files from a Secret or a ConfigMap."""
    errors = [] if source.get(name) else [field.required(f"{path}.{name}")]
    errors += _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    for index, item in enumerate(source.get("items") or []):
        here = f"{path}.items[{index}]"
        errors += [field.required(f"{here}.{key}") for key in ("key", "path") if not item.get(key)]
        errors += _local_path_errors(item.get("path") or "", f"{here}.path", reserved=True)
        errors += _mode_errors(item.get("mode"), f"{here}.mode")
    return errors


def _mode_errors(mode: int | None, path: str) -> list[FieldError]:
    return [] if mode is None or 0 <= mode <= _MOST_MODE else [field.invalid(path, mode, _MODE_TEXT)]


def _backstep_errors(text: str, path: str) -> list[FieldError]:
    """One error if a part of the path is ``..``."""
    return [field.invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def _local_path_errors(text: str, path: str, *, reserved: bool = False) -> list[FieldError]:
    """The errors of a path that has to be relative; ``reserved``: it must not begin with two dots either."""
    errors = [field.invalid(path, text, "must be a relative path")] if text.startswith("/") else []
    errors += _backstep_errors(text, path)
    # The kubelet writes such volumes through links named ``..data`` and the like.
    if reserved and text.startswith("..") and not text.startswith("../"):
        errors.append(field.invalid(path, text, "must not start with '..'"))
    return errors


def mount_errors(container: Object, volumes: dict[str, Object], path: str) -> list[FieldError]:
    """The errors of ``volumeMounts``; ``volumes`` are the valid ones of the pod, by name."""
    devices = {
        one.get("name") or "": one.get("devicePath") or "" for one in container.get("volumeDevices") or []
    }
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        here, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(field.required(f"{here}.name"))
        if name not in volumes:
            errors.append(field.not_found(f"{here}.name", name))
        if not target:
            errors.append(field.required(f"{here}.mountPath"))
        if target in seen:
            errors.append(field.invalid(f"{here}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in devices:
            errors.append(field.invalid(f"{here}.name", name, "must not already exist in volumeDevices"))
        if target in devices.values():
            text = "must not already exist as a path in volumeDevices"
            errors.append(field.invalid(f"{here}.mountPath", target, text))
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
            (bool(name), field.required(f"{here}.name")),
            (name not in names, field.invalid(f"{here}.name", name, "must be unique")),
            (volume is None or _is_block(volume), field.invalid(f"{here}.name", name, _NO_BLOCK)),
            (volume is not None, field.not_found(f"{here}.name", name)),
            (bool(target), field.required(f"{here}.devicePath")),
            (target not in targets, field.invalid(f"{here}.devicePath", target, "must be unique")),
            (not _backstep_errors(target, ""), field.invalid(f"{here}.devicePath", target, _NO_BACKSTEPS)),
            (
                name not in mounts,
                field.invalid(f"{here}.name", name, "must not already exist in volumeMounts"),
            ),
            (target not in mounts.values(), field.invalid(f"{here}.devicePath", target, _MOUNTED)),
        )
        errors += [error for right, error in checks if not right]
        if not _backstep_errors(target, ""):
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
    """The errors of ``subPath`` and ``subPathExpr``; some name the path of the list, as in Kubernetes."""
    fixed, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    errors = _local_path_errors(fixed, f"{path}.subPath") if fixed else []
    if expression:
        if fixed:
            text = "subPathExpr and subPath are mutually exclusive"
            errors.append(field.invalid(f"{here}.subPathExpr", expression, text))
        errors += _local_path_errors(expression, f"{path}.subPathExpr")
    return errors


def _propagation_errors(mount: Object, container: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    propagation, read_only = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        here = f"{path}.mountPropagation"
        if propagation not in _PROPAGATIONS:
            errors.append(field.not_supported(here, propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(field.forbidden(here, text))
    here = f"{path}.recursiveReadOnly"
    if read_only in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.append(field.forbidden(here, "may only be specified when readOnly is true"))
        if propagation is not None and propagation != "None":
            text = "may only be specified when mountPropagation is None or not specified"
            errors.append(field.forbidden(here, text))
    elif read_only is not None and read_only != "Disabled":
        errors.append(field.not_supported(here, read_only, _READ_ONLY))
    return errors
