"""Reads an object under review: its configurations for this driver, and its requests.

The objects are ResourceClaim, ResourceClaimTemplate and DeviceClass of resource.k8s.io/v1, v1beta2 and
v1beta1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from driver.devices.names import DRIVER_NAME

_DOMAIN = DRIVER_NAME.partition(".")[2]
GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
REVIEWED_KINDS = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
_MOST_ITEMS = 32
"""The most of any list that the API stores, such as requests. The time to compare all of an object grows with
the fourth power: with four times as many it would take minutes and all of the memory."""


class ReviewMalformed(ValueError):
    """The document is not an AdmissionReview, or its object does not have the form of its kind."""


@dataclass(frozen=True, slots=True)
class Config:
    """An opaque configuration for this driver; ``requests`` empty means every request.

    ``path`` is its field path, ``spec.devices.config[0]`` for one; ``parameters`` may be any JSON.
    """

    path: str
    requests: tuple[str, ...]
    parameters: Any


@dataclass(frozen=True, slots=True)
class Request:
    """A request, or ``<request>/<subrequest>`` of a prioritized list.

    ``class_name`` is the class that it names; ``is_installed``: it came with this driver. ``takes_all``: it
    asks for all devices.
    """

    name: str
    class_name: str
    admin_access: bool = False
    is_installed: bool = False
    takes_all: bool = False

    @property
    def class_words(self) -> str:
        """The class in words, for a sentence."""
        if self.class_name.endswith(_DOMAIN):
            return f"class {self.class_name}"
        return f"class {self.class_name}, as it comes with this driver,"

    @property
    def is_certain(self) -> bool:
        """Whether its class is sure to be this driver's: it was installed, or its name has the domain."""
        return self.is_installed or self.class_name.endswith(_DOMAIN)

    @property
    def top(self) -> str:
        """The request without its subrequest."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Subject:
    """An object under review.

    The configurations of a DeviceClass apply to every request for it, so ``requests`` is then one request for
    this class, without a name or class.
    """

    configs: tuple[Config, ...]
    requests: tuple[Request, ...]


def read_subject(kind: str, stored: Any) -> Subject:
    """Read an object of one of ``REVIEWED_KINDS``; raises ReviewMalformed for anything else."""
    spec = _mapping(_mapping(stored, "object").get("spec"), "object.spec")
    if kind == "DeviceClass":
        return Subject(_configs(spec, "spec"), (Request("", ""),))
    path = "spec"
    if kind == "ResourceClaimTemplate":
        spec, path = _mapping(spec.get("spec"), "object.spec.spec"), "spec.spec"
    devices, path = _mapping(spec.get("devices"), f"{path}.devices"), f"{path}.devices"
    requests = _items(devices, "requests", path)
    return Subject(
        _configs(devices, path),
        tuple(leaf for where, request in requests for leaf in _leaves(where, request)),
    )


def _configs(holder: Mapping[str, Any], path: str) -> tuple[Config, ...]:
    found = []
    for where, entry in _items(holder, "config", path):
        opaque = _mapping(entry.get("opaque"), f"{where}.opaque")
        if opaque.get("driver") == DRIVER_NAME:
            named = entry.get("requests") or ()
            if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
                raise ReviewMalformed(f"{where}.requests is not a list of names")
            if len(named) > _MOST_ITEMS:
                raise ReviewMalformed(f"{where}.requests has more than {_MOST_ITEMS} items")
            found.append(Config(where, tuple(named), opaque.get("parameters")))
    return tuple(found)


def _leaves(path: str, request: Mapping[str, Any]) -> list[Request]:
    """What can be allocated for one request: itself, or one of its subrequests."""
    name = _text(request, "name")
    subrequests = _items(request, "firstAvailable", path)
    if subrequests:
        return [
            Request(f"{name}/{_text(one, 'name')}", _text(one, "deviceClassName"), takes_all=_takes_all(one))
            for _, one in subrequests
        ]
    # v1 and v1beta2 have the class below exactly; v1beta1 has it beside the name.
    exactly = _mapping(request.get("exactly", request), f"{path}.exactly")
    admin_access, takes_all = exactly.get("adminAccess") is True, _takes_all(exactly)
    return [Request(name, _text(exactly, "deviceClassName"), admin_access, takes_all=takes_all)]


def _takes_all(asked: Mapping[str, Any]) -> bool:
    return asked.get("allocationMode") == "All"


def _items(holder: Mapping[str, Any], name: str, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The objects of a list with their field paths."""
    listed = holder.get(name)
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise ReviewMalformed(f"{path}.{name} is not a list")
    if len(listed) > _MOST_ITEMS:
        raise ReviewMalformed(f"{path}.{name} has more than {_MOST_ITEMS} items")
    return [
        (f"{path}.{name}[{index}]", _mapping(one, f"{path}.{name}[{index}]"))
        for index, one in enumerate(listed)
    ]


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    """An object of the document; an empty one if it is absent."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ReviewMalformed(f"{path} is not an object")
    return cast("Mapping[str, Any]", value)


def _text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name, "")
    if not isinstance(value, str):
        raise ReviewMalformed(f"a {name} is not a string")
    return value
