"""Leaves secrets out of a report: functions over objects of the API and over text."""

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
    {"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "POD_UID", "GOMAXPROCS", "TZ"}
    | {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
)
"""Variables of containers whose values are kept, as those of variables that set a flag of the driver."""

FLAGS = frozenset(
    {"addr", "cdi-dir", "cdi-hook", "cert-file", "config", "driver-root", "health-addr", "host-driver-root"}
    | {"host-root", "key-file", "kubeconfig", "log-level", "memory-hook", "metrics-addr", "mps-dir", "name"}
    | {"node-name", "nvml", "plugin-data-dir", "plugins-dir", "pod-uid", "proc-root", "registry-dir", "shm"}
    | {"shm-mib", "sysfs-root", "used-memory-status-seconds"}
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
"""Labels whose values are kept: those of Kubernetes, Node Feature Discovery and GPU Feature Discovery."""

_SECRET_KEYS = frozenset(
    {"password", "passwd", "token", "secret", "apikey", "api_key", "accesskey", "secretkey", "authorization"}
    | {"privatekey", "client-key-data", "client-certificate-data", "credentials", "bearertoken"}
)
_FREE = frozenset({"binaryData", "stringData", "volumeAttributes", "flexVolume", "httpHeaders", "exec"})
"""Fields of pods that may hold anything, and have held passwords."""

_OF_OTHERS = ("name", "image", "resources", "volumeMounts", "securityContext", "ports")
"""What is kept of a container that is not the driver's own."""

# In this order: the last pattern leaves alone what the ones before it have masked.
_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MASK,
    ),
    # A JSON Web Token, such as a service account's: its head is JSON in base64, which begins {" and so eyJ.
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), MASK),
    (re.compile(r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b(basic)\s+[A-Za-z0-9+/=]{16,}"), rf"\1 {MASK}"),
    # User and password in a URL.
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
    """The text, a log for example, without what looks like a token, a password or a private key."""
    for pattern, instead in _TEXT:
        text = pattern.sub(instead, text)
    return text


def masked_json(content: Any) -> Any:
    """A document that is not an object of the API, without values that may be secret."""
    return _value("", content)


def masked_object(item: Object) -> Object:
    """An object of the API without annotations, labels of users, and values that may be secret.

    It raises nothing: a field of an unexpected form is masked.
    """
    # Annotations may hold anything; kubectl keeps a copy of the whole object in one.
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
    """A field of an object; only the digest of a caBundle, which is long, and enough to compare."""
    if name in _FREE:
        return MASK
    if name == "caBundle":
        return f"sha256:{hashlib.sha256(str(value).encode()).hexdigest()}"
    return _value(name, value)


def masked_opaque(opaque: Mapping[str, Any]) -> Object:
    """An opaque configuration; without its parameters unless they are this driver's and valid."""
    driver = opaque.get("driver")
    if driver == DRIVER_NAME:
        try:
            # Parameters with a mistake may hold anything.
            decode_any(opaque.get("parameters"), of_class=True)
        except ClaimRefused:
            return {"driver": driver, "parameters": f"{MASK}: it contains mistakes"}
        return {"driver": driver, "parameters": opaque.get("parameters")}
    return {"driver": driver, "parameters": MASK}


def _device_status(entry: Any) -> Any:
    """An entry of ``status.devices`` of a claim; of other drivers' devices only which device it is."""
    if not isinstance(entry, dict) or entry.get("driver") == DRIVER_NAME:
        return _value("", entry)
    return {name: entry[name] for name in ("driver", "pool", "device", "shareID") if name in entry}


def _container(container: Object) -> Object:
    """A container; its command line and environment only if it is one of the driver."""
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
        return variable  # valueFrom only names a field, a ConfigMap or a Secret
    return {"name": name, "value": masked_text(str(variable["value"])) if known else MASK}


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line of the driver, without the values of unknown flags."""
    kept: list[str] = []
    hides = False  # whether the word is the value of an unknown flag
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
