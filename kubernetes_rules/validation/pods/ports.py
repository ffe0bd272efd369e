"""Checks the ports of containers."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import (
    FieldError,
    all_invalid,
    duplicate,
    invalid,
    not_supported,
    required,
)
from kubernetes_rules.validation.names import port_name

Object = dict[str, Any]

_PORTS = range(1, 65536)
_RANGE = "must be between 1 and 65535, inclusive"
_PROTOCOLS = ("SCTP", "TCP", "UDP")


def port_errors(ports: list[Object], path: str) -> list[FieldError]:
    """The errors of the ports of one container."""
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name") or ""
        wrong = port_name(name) if name else []
        errors += all_invalid(f"{here}.name", name, wrong)
        if name and not wrong:
            if name in names:
                errors.append(duplicate(f"{here}.name", name))
            names.add(name)
        number, outside = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            errors.append(required(f"{here}.containerPort"))
        elif number not in _PORTS:
            errors.append(invalid(f"{here}.containerPort", number, _RANGE))
        if outside and outside not in _PORTS:
            errors.append(invalid(f"{here}.hostPort", outside, _RANGE))
        protocol = port.get("protocol") or ""
        if not protocol:
            errors.append(required(f"{here}.protocol"))
        elif protocol not in _PROTOCOLS:
            errors.append(not_supported(f"{here}.protocol", protocol, _PROTOCOLS))
    return errors


def host_port_errors(containers: list[tuple[str, Object]]) -> list[FieldError]:
    """The errors of ports of the node that several of these containers, each with its path, ask for."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for path, container in containers:
        for index, port in enumerate(container.get("ports") or []):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                errors.append(duplicate(f"{path}.ports[{index}].hostPort", key))
            seen.add(key)
    return errors


def host_network_errors(containers: list[Object], path: str, *, of_template: bool) -> list[FieldError]:
    """The errors of ports that are not the node's own in a pod on the node's network.

    A template may leave them out, since its pods get them.
    """
    text = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}[{index}].ports[{number}].hostPort", port.get("hostPort") or 0, text)
        for index, container in enumerate(containers)
        for number, port in enumerate(container.get("ports") or [])
        if (port.get("hostPort") or 0) != (port.get("containerPort") or 0)
        and not (of_template and not port.get("hostPort"))
    ]
