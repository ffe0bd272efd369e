"""Leaves secrets out of what a report holds: pure functions over objects of the API and over text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from driver.claims.opaque import decode_any
from driver.devices.names import DRIVER_NAME
from driver.errors import ClaimRefused
from gpuctl.doctor.outside.programs import program_of

Object = dict[str, Any]

MASK = "(masked)"

KNOWN_VARIABLES = frozenset(
    {
        "NODE_NAME",
        "POD_NAME",
        "POD_NAMESPACE",
        "POD_UID",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
    }
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "GOMAXPROCS", "TZ"}
)
"""Variables of containers whose values are kept, beside those that set a flag of the driver."""

FLAGS = frozenset(
    {"addr", "cdi-dir", "cdi-hook", "cert-file", "config", "driver-root", "health-addr", "host-driver-root"}
    | {
        "host-root",
        "key-file",
        "kubeconfig",
        "log-level",
        "memory-hook",
        "metrics-addr",
        "mps-dir",
        "name",
        "node-name",
        "nvml",
    }
    | {"plugin-data-dir", "plugins-dir", "pod-uid", "proc-root", "registry-dir", "shm", "shm-mib"}
    | {"sysfs-root", "used-memory-status-seconds"}
)
"""The flags of the driver's processes: none of them takes a secret."""

_VARIABLE_PREFIX = "GPU_DRA_"
_METADATA = (
    *("name", "generateName", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"),
    *("resourceVersion", "ownerReferences", "finalizers"),
)
_LABELS = re.compile(
    r"(?:[a-z0-9.-]+\.)?(?:kubernetes\.io|k8s\.io)/|nvidia\.com/|app$|controller-revision-hash$|pod-template-",
    re.ASCII,
)
"""Labels whose values are kept: those of Kubernetes itself and of feature discoveries."""

_SECRET_KEYS = frozenset(
    {"password", "passwd", "token", "secret", "apikey", "api_key", "accesskey", "secretkey", "authorization"}
    | {"privatekey", "client-key-data", "client-certificate-data", "credentials", "bearertoken"}
)
_FREE = frozenset({"binaryData", "stringData", "volumeAttributes", "flexVolume", "httpHeaders", "exec"})
"""Fields of pods that may hold anything, and have held passwords."""

_OF_OTHERS = ("name", "image", "resources", "volumeMounts", "securityContext", "ports")
"""What is kept of a container that is not the driver's own."""

_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MASK,
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), MASK),
    (re.compile(r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b(basic)\s+[A-Za-z0-9+/=]{16,}"), rf"\1 {MASK}"),
    (re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+@"), f"{MASK}@"),
    (
        re.compile(
            r"(?i)((?:password|passwd|token|secret|api[_-]?key|access[_-]?key|client[_-]key[_-]data|"
            r"authorization|credential)s?[\"']?\s*[:=]\s*[\"']?)"
            r"(?!\(masked\)|(?:bearer|basic) \()[^\s\"',;}]+"
        ),
        rf"\1{MASK}",
    ),
)


def masked_text(text: str) -> str:
    """A text, such as a log, without what looks like a token, a password or a private key."""
    for pattern, instead in _TEXT:
        text = pattern.sub(instead, text)
    return text


def masked_json(content: Any) -> Any:
    """A document that is no object of the API, likewise."""
    return _value("", content)


def masked_object(item: Object) -> Object:
    """An object of the API without annotations, labels of users, and values that may be secret.

    Raises nothing: what is not as the API has it is masked.
    """
    kept: Object = {name: item[name] for name in ("apiVersion", "kind") if name in item}
    kept["metadata"] = _metadata(item.get("metadata") or {})
    for name, value in item.items():
        if name not in ("apiVersion", "kind", "metadata"):
            kept[name] = _value(name, value)
    return kept


def _metadata(metadata: Mapping[str, Any]) -> Object:
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    labels = {
        name: value if _LABELS.match(name) else MASK for name, value in (metadata.get("labels") or {}).items()
    }
    return {**kept, "labels": labels} if labels else kept


def _value(name: str, value: Any) -> Any:
    """A field of an object, by its name."""
    if isinstance(value, str):
        return MASK if name.lower() in _SECRET_KEYS else masked_text(value)
    if name == "opaque" and isinstance(value, dict):
        return masked_opaque(value)
    if name == "metadata" and isinstance(value, dict):
        return _metadata(value)
    if name in ("containers", "initContainers", "ephemeralContainers") and isinstance(value, list):
        return [_container(one) for one in value if isinstance(one, dict)]
    if isinstance(value, dict):
        return {key: _field(key, one) for key, one in value.items()}
    if isinstance(value, list):
        if name == "devices" and any(isinstance(one, dict) and "driver" in one for one in value):
            return [_device_status(one) for one in value]
        return [_value(name, one) for one in value]
    return value


def _field(name: str, value: Any) -> Any:
    """A field of an object; of a caBundle, only its digest."""
    if name in _FREE:
        return MASK
    if name == "caBundle":
        return f"sha256:{hashlib.sha256(str(value).encode()).hexdigest()}"
    return _value(name, value)


def masked_opaque(opaque: Mapping[str, Any]) -> Object:
    """An opaque configuration: that of this driver when it is one, and of others nothing but the driver.

    What has a mistake may hold anything, so it is left out as well.
    """
    driver = opaque.get("driver")
    if driver == DRIVER_NAME:
        try:
            decode_any(opaque.get("parameters"), of_class=True)
        except ClaimRefused:
            return {"driver": driver, "parameters": f"{MASK}: it has mistakes"}
        return {"driver": driver, "parameters": opaque.get("parameters")}
    return {"driver": driver, "parameters": MASK}


def _device_status(entry: Any) -> Any:
    """An entry of the status of a claim's devices; what other drivers say of theirs is left out."""
    if not isinstance(entry, dict) or entry.get("driver") == DRIVER_NAME:
        return _value("", entry)
    return {name: entry[name] for name in ("driver", "pool", "device", "shareID") if name in entry}


def _container(container: Object) -> Object:
    """A container: how it is started only where it is the driver's own."""
    if program_of(container) is None:
        return {name: _value(name, container[name]) for name in _OF_OTHERS if name in container}
    kept = {
        name: _value(name, value)
        for name, value in container.items()
        if name not in ("env", "args", "command")
    }
    for name in ("command", "args"):
        if container.get(name):
            kept[name] = masked_words([str(word) for word in container[name]])
    if container.get("env"):
        kept["env"] = [_variable(one) for one in container["env"] if isinstance(one, dict)]
    return kept


def _variable(variable: Object) -> Object:
    name = str(variable.get("name"))
    flag = name.removeprefix(_VARIABLE_PREFIX).lower().replace("_", "-")
    known = name in KNOWN_VARIABLES or (name.startswith(_VARIABLE_PREFIX) and flag in FLAGS)
    if "value" not in variable:
        return variable  # it only says where the value comes from
    return {"name": name, "value": masked_text(str(variable["value"])) if known else MASK}


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line of the driver; the value of a flag that is not known is left out."""
    kept: list[str] = []
    hides = False
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            known = flag.removeprefix("--") in FLAGS
            kept.append(f"{flag}={masked_text(value) if known else MASK}" if equals else flag)
            hides = not known and not equals
        else:
            kept.append(MASK if hides else masked_text(word))
            hides = False
    return kept
