"""Checks the volumes of a pod: their names, that each has one source, and the sources that nodes have."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation.errors import (
    FieldError,
    all_invalid,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubernetes_rules.validation.names import dns_label, dns_subdomain
from kubernetes_rules.validation.pods.paths import backstep_errors, local_path_errors

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
"""What Kubernetes calls a source where it is one too many."""
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
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def volume_errors(
    volumes: list[Object], pod: Object, path: str
) -> tuple[dict[str, Object], list[FieldError]]:
    """The volumes that are right, by name, and the errors of the others; ``pod`` is the pod's metadata."""
    found: dict[str, Object] = {}
    errors: list[FieldError] = []
    pod_name = pod.get("name") or ""
    made = {f"{pod_name}-{one.get('name') or ''}" for one in volumes if one.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        here, name = f"{path}[{index}]", volume.get("name") or ""
        wrong = _source_errors(volume, pod_name, here)
        wrong += (
            all_invalid(f"{here}.name", name, dns_label(name, "characters"))
            if name
            else [required(f"{here}.name")]
        )
        if name in found:
            wrong.append(duplicate(f"{here}.name", name))
        if not wrong:
            found[name] = volume
        errors += wrong
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if volume.get("persistentVolumeClaim") is not None and pod_name and claim in made:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{here}.persistentVolumeClaim.claimName", claim, text))
    return found, errors


def pull_policy_errors(policy: str, path: str) -> list[FieldError]:
    """The errors of when an image is pulled."""
    if not policy:
        return [required(path)]
    return [] if policy in PULL_POLICIES else [not_supported(path, policy, PULL_POLICIES)]


def _source_errors(volume: Object, pod_name: str, path: str) -> list[FieldError]:
    given = [name for name in _SOURCES if volume.get(name) is not None]
    if not given:
        return [required(path, "must specify a volume type")]
    errors = _content_errors(given[0], volume[given[0]], f"{path}.{given[0]}")
    text = "may not specify more than 1 volume type"
    errors += [forbidden(f"{path}.{_SECOND_PATHS.get(name, name)}", text) for name in given[1:]]
    name = volume.get("name") or ""
    if given[0] == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        wrong = dns_subdomain(claim, "characters")
        errors += all_invalid(f"{path}.name", name, [f'PVC name "{claim}": {text}' for text in wrong])
    return errors


def _content_errors(kind: str, source: Object, path: str) -> list[FieldError]:
    match kind:
        case "emptyDir":
            size = Quantity.parse(str(source.get("sizeLimit") or "0"))
            text = "SizeLimit field must be a valid resource quantity"
            return [forbidden(f"{path}.sizeLimit", text)] if size.value < 0 else []
        case "hostPath":
            return _host_path_errors(source, path)
        case "secret":
            return _files_errors(source, "secretName", path)
        case "configMap":
            return _files_errors(source, "name", path)
        case "persistentVolumeClaim":
            return [] if source.get("claimName") else [required(f"{path}.claimName")]
        case "image":
            errors = [] if source.get("reference") else [required(f"{path}.reference")]
            return errors + pull_policy_errors(source.get("pullPolicy") or "", f"{path}.pullPolicy")
    return []


def _host_path_errors(source: Object, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [required(f"{path}.path")]
    errors = backstep_errors(source["path"], f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def _files_errors(source: Object, name: str, path: str) -> list[FieldError]:
    """The errors of files from a Secret or a ConfigMap."""
    errors = [] if source.get(name) else [required(f"{path}.{name}")]
    errors += _mode_errors(source.get("defaultMode"), f"{path}.defaultMode")
    for index, item in enumerate(source.get("items") or []):
        here = f"{path}.items[{index}]"
        errors += [required(f"{here}.{key}") for key in ("key", "path") if not item.get(key)]
        errors += local_path_errors(item.get("path") or "", f"{here}.path", reserved=True)
        errors += _mode_errors(item.get("mode"), f"{here}.mode")
    return errors


def _mode_errors(mode: int | None, path: str) -> list[FieldError]:
    return [] if mode is None or 0 <= mode <= _MOST_MODE else [invalid(path, mode, _MODE_TEXT)]
