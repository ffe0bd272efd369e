"""Reads and checks the configuration files of NVIDIA's device plugin (``version: v1``).

version: v1
flags: {migStrategy: none}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]

A file is such a configuration, or a ConfigMap with one below each key of its data; there a node's label
nvidia.com/device-plugin.config chooses one. The values of the plugin's chart have the same below
``config.map``, those of the GPU operator's below ``devicePlugin.config.data``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jsonschema
import yaml

from driver.devices.sharing import Strategy
from driver.errors import ConfigError
from driver.policy.strict_yaml import load_strictly
from gpuctl.importing.mig_parted import ALONE, read_yaml

MigStrategy = Literal["none", "single", "mixed"]

PREFIX = "nvidia.com/"
GPU = "nvidia.com/gpu"
_MOST_NAME_CHARACTERS = 63
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(
    rf"[0-9]{{1,4}}(:[0-9]{{1,4}})?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+", re.ASCII
)

Json = dict[str, Any]

_ONE_OR_MORE = {"type": ["string", "array"], "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Replicated:
    """A resource whose devices are shared by ``replicas`` containers each.

    ``resource`` is nvidia.com/gpu or nvidia.com/mig-1g.10gb, for example; ``offered_as`` is the name that
    pods ask for. ``devices`` is a number of GPUs, counted from the first, or the indexes and UUIDs of GPUs
    and partitions as they were written; None for all. ``path`` is the path of the field.
    """

    path: str
    resource: str
    replicas: int
    offered_as: str
    devices: int | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One configuration. ``lost`` says, with field paths, what of it has no equivalent here."""

    mig_strategy: MigStrategy = "none"
    strategy: Strategy | None = None
    resources: tuple[Replicated, ...] = ()
    lost: tuple[str, ...] = ()


def load_device_plugin(path: Path) -> dict[str, PluginConfig]:
    """The configurations of a file by name: a key of the ConfigMap, or the file's name without its ending.

    Raises ConfigError with all errors in the file, each with the path of its field.
    """
    errors: list[str] = []
    found: dict[str, PluginConfig] = {}
    place, document = read_yaml(path, "config.map", "devicePlugin.config.data")
    for name, key, one in _documents(place, document, path.stem, errors):
        if name in found:
            errors.append(f"{key}: another key has the same configuration name {name}")
        found[name] = _configuration(one, f"{key}." if key else "", errors)
    if errors:
        said = "; ".join(errors)
        raise ConfigError(f"{path} is not a configuration of the device plugin: {said}", ALONE)
    return found


def _documents(place: str, data: Any, stem: str, errors: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Each configuration with its name and its path; the path is empty if ``data`` is the configuration."""
    if not place:
        if not _KEY.fullmatch(stem):
            errors.append(f"the file's name {stem!r} cannot name a configuration: rename it")
        yield stem, "", data
        return
    if not isinstance(data, dict) or not data:
        errors.append(f"{place}: must be a mapping with at least one configuration")
        return
    for key, text in data.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or not isinstance(text, str):
            errors.append(
                f"{place}.{key}: must be the text of a configuration, under a name that a file can have"
            )
            continue
        try:
            yield re.sub(r"\.(ya?ml|json)\Z", "", key), f"{place}.{key}", load_strictly(text)
        except yaml.YAMLError as error:
            errors.append(f"{place}.{key}: is not YAML: {error}")


def _configuration(document: Any, path: str, errors: list[str]) -> PluginConfig:
    document = {} if document is None else document
    wrong = sorted(
        jsonschema.Draft202012Validator(CONFIGURATION).iter_errors(document), key=lambda e: e.json_path
    )
    for error in wrong:
        place = error.json_path.removeprefix("$").lstrip(".")
        errors.append(f"{path}{place or 'the document'}: {error.message}")
    if wrong:
        return PluginConfig()
    flags = document.get("flags") or {}
    lost = [*_lost_flags(flags, path), *_lost_fields(document, path)]
    strategy, resources = _sharing(document.get("sharing") or {}, f"{path}sharing", errors, lost)
    return PluginConfig(flags.get("migStrategy", "none"), strategy, resources, tuple(lost))


def _lost_flags(flags: Mapping[str, Any], path: str) -> Iterator[str]:
    for flag, (harmless, instead) in WITHOUT_EQUIVALENT.items():
        group, _, name = flag.rpartition(".")
        holder = flags.get(group) or {} if group else flags
        if name in holder and holder[name] not in harmless:
            yield f"{path}flags.{flag}: has no equivalent: {instead}"


def _lost_fields(document: Mapping[str, Any], path: str) -> Iterator[str]:
    if any((document.get("resources") or {}).values()):
        yield (
            f"{path}resources: names by pattern have no equivalent (and no effect in the device plugin): "
            "write a DeviceClass with a selector and an extendedResourceName"
        )
    if (document.get("imex") or {}).get("channelIDs"):
        yield f"{path}imex.channelIDs: IMEX channels have no equivalent"


def _sharing(
    sharing: Mapping[str, Any], path: str, errors: list[str], lost: list[str]
) -> tuple[Strategy | None, tuple[Replicated, ...]]:
    """The strategy and its resources; if both strategies are given, MPS counts, as in the device plugin."""
    if "mps" in sharing and "timeSlicing" in sharing:
        lost.append(f"{path}.timeSlicing: has no effect next to mps, as in the device plugin")
    strategy: Strategy = "MPS" if "mps" in sharing else "TimeSlicing"
    path = f"{path}.{'mps' if strategy == 'MPS' else 'timeSlicing'}"
    used = sharing.get("mps") or sharing.get("timeSlicing")
    if used is None:
        return None, ()
    if used.get("failRequestsGreaterThanOne", strategy == "MPS"):
        unset = "" if "failRequestsGreaterThanOne" in used else " (the default of mps)"
        lost.append(
            f"{path}.failRequestsGreaterThanOne{unset}: a request for several shares is not refused: it gets "
            "shares of as many GPUs, or waits"
        )
    rename = used.get("renameByDefault", False)
    found = []
    for index, one in enumerate(used["resources"]):
        read = _resource(one, rename, f"{path}.resources[{index}]", errors, lost)
        if read.replicas > 1:
            found.append(read)
        else:
            # NVIDIA's plugin ends with "number of replicas must be >= 2", but the meaning is clear.
            lost.append(
                f"{read.path}.replicas: 1 shares nothing, and NVIDIA's device plugin refuses it: "
                f"{read.resource} is not shared"
            )
    for index, replicated in enumerate(found):
        rest = [other for other in found[index + 1 :] if other.resource == replicated.resource]
        if rest and not all(isinstance(other.devices, tuple) for other in (replicated, *rest)):
            errors.append(f"{replicated.path}.name: {replicated.resource} is listed more than once")
    return strategy, tuple(found)


def _resource(
    entry: Mapping[str, Any], rename: bool, path: str, errors: list[str], lost: list[str]
) -> Replicated:
    resource = _resource_name(entry["name"], f"{path}.name", errors)
    offered_as = f"{resource}.shared" if rename else resource
    if "rename" in entry:
        offered_as = _resource_name(entry["rename"], f"{path}.rename", errors)
        lost.append(f"{path}.rename: the device plugin ignores it; here pods ask for {offered_as}")
    devices = _devices(entry.get("devices", "all"), f"{path}.devices", errors)
    if devices is not None:
        lost.append(
            f"{path}.devices: the device plugin ignores it and shares all; here only these are shared"
        )
    return Replicated(path, resource, int(entry["replicas"]), offered_as, devices)


def _resource_name(text: str, path: str, errors: list[str]) -> str:
    """The full name of a resource; like the device plugin, adds the prefix to a name without it."""
    name = text if text.startswith(PREFIX) else PREFIX + text
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)) or len(name) > _MOST_NAME_CHARACTERS:
        errors.append(
            f"{path}: {name[:100]} is not a resource name with at most {_MOST_NAME_CHARACTERS} characters"
        )
    return name


def _devices(value: Any, path: str, errors: list[str]) -> int | tuple[str, ...] | None:
    if value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    listed = [str(one) for one in value] if isinstance(value, list) else []
    if listed and all(_DEVICE.fullmatch(one) for one in listed):
        return tuple(listed)
    errors.append(f"{path}: must be all, a number above zero, or a list of indexes and UUIDs")
    return None


def _object(**properties: Json) -> Json:
    """A mapping with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


_BOOLEAN, _TEXT = {"type": "boolean"}, {"type": "string"}

FLAGS = _object(
    migStrategy={"enum": ["none", "single", "mixed"]},
    failOnInitError=_BOOLEAN,
    restartOnDeviceUnhealthy=_BOOLEAN,
    mpsRoot=_TEXT,
    nvidiaDriverRoot=_TEXT,
    nvidiaDevRoot=_TEXT,
    gdrcopyEnabled=_BOOLEAN,
    gdsEnabled=_BOOLEAN,
    mofedEnabled=_BOOLEAN,
    useNodeFeatureAPI=_BOOLEAN,
    deviceDiscoveryStrategy=_TEXT,
    plugin=_object(
        passDeviceSpecs=_BOOLEAN,
        deviceListStrategy=_ONE_OR_MORE,
        deviceIDStrategy=_TEXT,
        cdiAnnotationPrefix=_TEXT,
        nvidiaCTKPath=_TEXT,
        containerDriverRoot=_TEXT,
        sharedDevicesAllocationPolicy={"enum": ["distributed", "packed"]},
    ),
    gfd=_object(
        oneshot=_BOOLEAN,
        noTimestamp=_BOOLEAN,
        sleepInterval={"type": ["string", "integer"]},
        outputFile=_TEXT,
        machineTypeFile=_TEXT,
    ),
)

_SHARED = {
    **_object(
        renameByDefault=_BOOLEAN,
        failRequestsGreaterThanOne=_BOOLEAN,
        resources={
            "type": "array",
            "minItems": 1,
            "items": {
                **_object(
                    name=_TEXT,
                    rename=_TEXT,
                    replicas={"type": "integer", "minimum": 1},
                    devices={
                        "type": ["string", "integer", "array"],
                        "items": {"type": ["string", "integer"]},
                    },
                ),
                "required": ["name", "replicas"],
            },
        },
    ),
    "required": ["resources"],
}

_PATTERNS = {
    "type": "array",
    "items": {**_object(pattern=_TEXT, name=_TEXT), "required": ["pattern", "name"]},
}

CONFIGURATION = _object(
    version={"enum": ["v1", ""]},
    flags={**FLAGS, "type": ["object", "null"]},
    resources={**_object(gpus=_PATTERNS, mig=_PATTERNS), "type": ["object", "null"]},
    sharing={**_object(timeSlicing=_SHARED, mps=_SHARED), "type": ["object", "null"]},
    imex=_object(channelIDs={"type": "array", "items": {"const": 0}, "maxItems": 1}, required=_BOOLEAN),
)
"""A JSON schema. It cannot express the rules of names and devices; these are checked as they are read."""

_CDI = "a device always comes through a CDI spec here"
_LABELS = "labels of nodes: devices have attributes instead (docs/attributes.md)"

WITHOUT_EQUIVALENT: dict[str, tuple[tuple[Any, ...], str]] = {
    "failOnInitError": ((True,), "a node without its driver publishes nothing, and the log says why"),
    "restartOnDeviceUnhealthy": ((False,), "there is nothing to restart"),
    "mpsRoot": ((), "a folder of the node: --mps-dir of the kubelet plugin"),
    "nvidiaDriverRoot": (
        ("/",),
        "a folder of the node: --driver-root of the controller and the kubelet plugin",
    ),
    "nvidiaDevRoot": (("/",), "device nodes are searched below --driver-root"),
    "gdrcopyEnabled": ((False,), "no GDRCopy devices are added"),
    "gdsEnabled": ((False,), "no GPUDirect Storage devices are added"),
    "mofedEnabled": ((False,), "no InfiniBand devices are added"),
    "useNodeFeatureAPI": ((False,), _LABELS),
    "deviceDiscoveryStrategy": (("auto", "nvml"), "GPUs are found with NVML only"),
    "plugin.passDeviceSpecs": ((False,), _CDI),
    "plugin.deviceListStrategy": (("envvar", "cdi-cri", ["envvar"], ["cdi-cri"]), _CDI),
    "plugin.deviceIDStrategy": (("uuid",), _CDI),
    "plugin.cdiAnnotationPrefix": (("cdi.k8s.io/",), _CDI),
    "plugin.nvidiaCTKPath": (("/usr/bin/nvidia-ctk",), _CDI),
    "plugin.containerDriverRoot": (("/driver-root",), _CDI),
    "plugin.sharedDevicesAllocationPolicy": (
        ("packed",),
        "the scheduler fills a GPU before it uses the next: distinctAttribute spreads the shares of a claim",
    ),
    "gfd.oneshot": ((False,), _LABELS),
    "gfd.noTimestamp": ((False,), _LABELS),
    "gfd.sleepInterval": (("60s",), _LABELS),
    "gfd.outputFile": (("/etc/kubernetes/node-feature-discovery/features.d/gfd",), _LABELS),
    "gfd.machineTypeFile": (("/sys/class/dmi/id/product_name",), _LABELS),
}
"""Flag -> the values with which nothing is lost, and what a user has to know about any other value."""
