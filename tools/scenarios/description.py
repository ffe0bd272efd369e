"""Reads ``scenario.yaml``: the cluster that a scenario needs. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jsonschema
import yaml

from driver.policy.strict_yaml import load_strictly
from envtest.client.layout import MAX_NODES
from envtest.client.shipped import PACKAGE_ROOT
from fakegpu.machine.spec import shipped_file
from tools.scenarios.page import ScenarioWrong
from tools.scenarios.places.needs import NEEDS

ClusterKind = Literal["embedded", "real"]
CLUSTERS: tuple[ClusterKind, ...] = ("embedded", "real")
DEFAULT_CONFIG = "deploy/examples/node-config/all-tiers.yaml"


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its machine (the name of a shipped one, or a path), labels, and more flags of the driver."""

    machine: str
    labels: tuple[tuple[str, str], ...] = ()
    controller_flags: tuple[str, ...] = ()
    plugin_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster that a scenario needs; scenarios with equal ones can share a cluster.

    ``config`` is the text of the node configuration at the start. Without nodes there is no cluster at all:
    such a scenario runs commands that need none.
    """

    nodes: tuple[Node, ...]
    config: str
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Description:
    """A scenario.yaml: the cluster, the kinds of clusters on which it runs, and whether it takes long.

    ``why`` says why it does not run on every kind of cluster.
    """

    wanted: Wanted
    config_file: Path
    clusters: tuple[ClusterKind, ...]
    why: str
    long: bool


_STRINGS = {"type": "array", "items": {"type": "string"}}
_NODE = {
    "machine": {"type": "string"},
    "count": {"type": "integer", "minimum": 1},
    "labels": {"type": "object"},
    "flags": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"controller": _STRINGS, "kubeletplugin": _STRINGS},
    },
}
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "nodes"],
    "properties": {
        "version": {"const": "v1"},
        "nodes": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["machine"],
                "properties": _NODE,
            },
        },
        "config": {"type": "string"},
        "needs": {"type": "array", "items": {"enum": sorted(NEEDS)}},
        "clusters": {"type": "array", "items": {"enum": [*CLUSTERS]}},
        "why": {"type": "string"},
        "long": {"type": "boolean"},
    },
}


def read_description(file: Path) -> Description:
    """Read a scenario.yaml.

    Raises:
        ScenarioWrong: it cannot be read, or a key is unknown or has a wrong value; names the key.
    """
    try:
        document = load_strictly(file.read_text())
        jsonschema.validate(document, _SCHEMA)
    except OSError as error:
        raise ScenarioWrong(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioWrong(f"{file} is no YAML: {error}") from error
    except jsonschema.ValidationError as error:
        raise ScenarioWrong(f"{file}: {error.json_path}: {error.message}") from error
    nodes = [node for one in document["nodes"] for node in _nodes(file, one)]
    if len(nodes) > MAX_NODES:
        raise ScenarioWrong(f"{file} asks for {len(nodes)} nodes, and a cluster has at most {MAX_NODES}")
    config = _config_file(file, document.get("config", ""))
    if not config.is_file():
        raise ScenarioWrong(f"{file}: config names {config}, which is no file")
    clusters = tuple(kind for kind in CLUSTERS if kind in document.get("clusters", CLUSTERS))
    why = document.get("why", "")
    if len(clusters) < len(CLUSTERS) and not why:
        raise ScenarioWrong(f"{file}: why has to say why it runs on {', '.join(clusters)} only")
    wanted = Wanted(tuple(nodes), config.read_text(), frozenset(document.get("needs", ())))
    return Description(wanted, config, clusters, why, document.get("long", False))


def _nodes(file: Path, document: Mapping[str, Any]) -> list[Node]:
    machine = document["machine"]
    if shipped_file(machine) is None:
        beside = file.parent / machine
        if not beside.is_file():
            raise ScenarioWrong(f"{file}: {machine!r} is neither a shipped machine nor a file beside it")
        machine = str(beside.resolve())
    labels = tuple(sorted((str(key), str(value)) for key, value in document.get("labels", {}).items()))
    flags = document.get("flags", {})
    node = Node(machine, labels, tuple(flags.get("controller", ())), tuple(flags.get("kubeletplugin", ())))
    return [node] * document.get("count", 1)


def _config_file(file: Path, named: str) -> Path:
    """The node configuration: a file in the folder of the description, or a path in the checkout."""
    if not named:
        return PACKAGE_ROOT / DEFAULT_CONFIG
    beside = file.parent / named
    return beside if beside.exists() else PACKAGE_ROOT / named
