"""Reads what gpu-memory-hook tells of a container, and writes what it is answered: one line of JSON each.

Pure. The runtime's annotations are written by whoever made the pod as well, so nothing in them is believed to
be a name that could not be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from driver.kube.decode import decode_json
from kubeletplugin.kubelet.wire.container_start import ContainerStart
from kubeletplugin.kubelet.wire.names import is_safe_uid

MOST_BYTES = 64 * 1024
"""What a line has at the most, either way."""

PROTOCOL = 1

_MOST_CGROUP_CHARACTERS = 16 * 1024
_MOST_MESSAGE_CHARACTERS = 4096
_CONTAINER_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.+-]{0,254}", re.ASCII)  # runc's and crun's
_CDI_DEVICE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.:-]{0,254}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL.pattern}(?:\.{_LABEL.pattern})*", re.ASCII)

_CONTAINERD = tuple(
    f"io.kubernetes.cri.{name}" for name in ("sandbox-namespace", "sandbox-name", "container-name")
)
_CRI_O = "io.kubernetes.cri-o.ContainerName"
"""``k8s_<container>_<pod>_<namespace>_<UID of the pod>_<attempt>``; no name in it has an underscore."""

_KUBELET = tuple(f"io.kubernetes.{name}" for name in ("pod.namespace", "pod.name", "container.name"))
"""The labels that the kubelet gives every container, which CRI-O copies (pkg/kubelet/types/labels.go)."""

Names = tuple[str, str, str]
_UNKNOWN: Names = ("", "", "")


class MalformedCall(Exception):
    """The line tells of no container; the message says what is wrong with it."""


def container_start(line: bytes) -> ContainerStart:
    """The container that a line of the hook tells of; raises MalformedCall."""
    try:
        told = decode_json(line)
    except ValueError as error:
        raise MalformedCall(f"it is no JSON: {type(error).__name__}") from error
    if not isinstance(told, dict):
        raise MalformedCall("it is no JSON object")
    if told.get("version") != PROTOCOL:
        raise MalformedCall(f"it is not in version {PROTOCOL} of the protocol")
    claim_uid, cdi_device = _text(told, "claim"), _text(told, "device")
    if not is_safe_uid(claim_uid):
        raise MalformedCall("its claim is no UID")
    if _CDI_DEVICE.fullmatch(cdi_device) is None or not cdi_device.startswith(f"{claim_uid}-"):
        raise MalformedCall("its device is none of its claim")
    state = told.get("state")
    if not isinstance(state, dict):
        raise MalformedCall("it has no state of a container")
    container_id, cgroup = _text(state, "id"), _text(told, "cgroup")
    if _CONTAINER_ID.fullmatch(container_id) is None:
        raise MalformedCall("its state has no id of a container")
    if not 0 < len(cgroup) <= _MOST_CGROUP_CHARACTERS or not cgroup.replace("\n", " ").isprintable():
        raise MalformedCall("its control group is none")
    namespace, pod, container = names_of(state.get("annotations"))
    return ContainerStart(claim_uid, cdi_device, container_id, cgroup, namespace, pod, container)


def names_of(annotations: Any) -> Names:
    """Namespace, pod and container as the runtime's annotations have them, all empty where they do not.

    containerd and CRI-O write annotations of their own, which no pod can replace. Some runtimes are set to
    hand on those of pods as well, which can look like the other runtime's: where the two contradict each
    other, neither counts.
    """
    if not isinstance(annotations, Mapping):
        return _UNKNOWN
    of_containerd = _checked(*(annotations.get(name) for name in _CONTAINERD))
    of_cri_o = _of_cri_o(annotations.get(_CRI_O))
    found = {names for names in (of_containerd, of_cri_o) if names != _UNKNOWN}
    if found:
        return found.pop() if len(found) == 1 else _UNKNOWN
    return _checked(*(annotations.get(name) for name in _KUBELET))


def _of_cri_o(name: Any) -> Names:
    parts = name.split("_") if isinstance(name, str) else []
    if len(parts) != 6 or parts[0] != "k8s":
        return _UNKNOWN
    return _checked(parts[3], parts[2], parts[1])


def _checked(namespace: Any, pod: Any, container: Any) -> Names:
    """The three names where each can be one, else none of them."""
    if not (isinstance(namespace, str) and isinstance(pod, str) and isinstance(container, str)):
        return _UNKNOWN
    are_names = _LABEL.fullmatch(namespace) and _SUBDOMAIN.fullmatch(pod) and _LABEL.fullmatch(container)
    return (namespace, pod, container) if are_names else _UNKNOWN


def yes() -> bytes:
    """The answer to a container that may start."""
    return b'{"ok":true}\n'


def no(message: str) -> bytes:
    """The answer to a container that may not; the message is for whoever looks at its pod."""
    told = {"ok": False, "message": message[:_MOST_MESSAGE_CHARACTERS]}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str):
        raise MalformedCall(f"it has no {name}")
    return value
