"""Reads ``scenario.yaml``: the cluster that a scenario needs. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from driver.policy.strict_yaml import load_strictly
from envtest.client.layout import MAX_NODES
from envtest.client.shipped import PACKAGE_ROOT
from fakegpu.machine.spec import known_machines
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


def read_description(file: Path) -> Description:
    """Read a scenario.yaml.

    Raises:
        ScenarioWrong: it cannot be read, or a key is unknown or has a wrong value; names the key.
    """
    try:
        document = load_strictly(file.read_text())
    except OSError as error:
        raise ScenarioWrong(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioWrong(f"{file} is no YAML: {error}") from error
    fields = _Fields(file, "", document)
    if fields.take("version", str, "") != "v1":
        raise fields.wrong("version", "has to be v1")
    listed = fields.take("nodes", list, None)
    nodes = [node for index, one in enumerate(listed) for node in _nodes(file, index, one)]
    if len(nodes) > MAX_NODES:
        raise fields.wrong("nodes", f"asks for {len(nodes)} nodes, and a cluster has at most {MAX_NODES}")
    config = _config_file(file, fields.take("config", str, ""))
    needs = frozenset(fields.strings("needs"))
    for need in needs - NEEDS.keys():
        raise fields.wrong("needs", f"asks for {need!r}, and what is offered is {_listed(NEEDS)}")
    clusters = _clusters(fields)
    why = fields.take("why", str, "")
    if len(clusters) < len(CLUSTERS) and not why:
        raise fields.wrong("why", f"has to say why it runs on {_listed(clusters)} only")
    long = fields.take("long", bool, default=False)
    fields.check_all_taken()
    try:
        return Description(Wanted(tuple(nodes), config.read_text(), needs), config, clusters, why, long)
    except OSError as error:
        raise fields.wrong("config", f"names {config}, which cannot be read: {error.strerror}") from error


def _nodes(file: Path, index: int, document: object) -> list[Node]:
    fields = _Fields(file, f"nodes[{index}].", document)
    machine = fields.take("machine", str, "")
    if machine not in known_machines():
        beside = file.parent / machine
        if not machine or not beside.is_file():
            raise fields.wrong("machine", f"{machine!r} is neither a shipped machine nor a file beside it")
        machine = str(beside.resolve())
    count = fields.take("count", int, 1)
    if count < 1:
        raise fields.wrong("count", "has to be at least 1")
    labels = tuple(sorted((str(key), str(value)) for key, value in fields.take("labels", dict, {}).items()))
    flags = _Fields(file, f"nodes[{index}].flags.", fields.take("flags", dict, {}))
    node = Node(machine, labels, flags.strings("controller"), flags.strings("kubeletplugin"))
    flags.check_all_taken()
    fields.check_all_taken()
    return [node] * count


def _config_file(file: Path, named: str) -> Path:
    """The node configuration: a file in the folder of the description, or a path in the checkout."""
    if not named:
        return PACKAGE_ROOT / DEFAULT_CONFIG
    beside = file.parent / named
    return beside if beside.exists() else PACKAGE_ROOT / named


def _clusters(fields: _Fields) -> tuple[ClusterKind, ...]:
    asked = fields.strings("clusters") or CLUSTERS
    unknown = [one for one in asked if one not in CLUSTERS]
    if unknown:
        raise fields.wrong("clusters", f"names {unknown[0]!r}, and there are {_listed(CLUSTERS)}")
    return tuple(kind for kind in CLUSTERS if kind in asked)


def _listed(words: Collection[str]) -> str:
    return ", ".join(sorted(words)) or "nothing"


class _Fields:
    """A mapping of the file, whose keys are taken one by one; a key that is left over is an error."""

    def __init__(self, file: Path, prefix: str, document: object) -> None:
        self._file = file
        self._prefix = prefix
        if not isinstance(document, Mapping):
            raise self.wrong("", "has to be a mapping")
        self._left: dict[str, Any] = dict(document)

    def take(self, key: str, kind: type, default: Any) -> Any:
        """The value of a key, which has to be of a type; the default if the key is missing."""
        value = self._left.pop(key, default)
        # bool is a subclass of int.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(key, f"has to be a {kind.__name__}, and is {value!r}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """The strings of a list; empty if the key is missing."""
        value = self.take(key, list, [])
        if not all(isinstance(one, str) for one in value):
            raise self.wrong(key, f"has to be a list of strings, and is {value!r}")
        return tuple(value)

    def check_all_taken(self) -> None:
        """Raise for the first key that was not taken."""
        for key in self._left:
            raise self.wrong(key, "is not known")

    def wrong(self, key: str, says: str) -> ScenarioWrong:
        """The error about a key of the file."""
        name = f"{self._prefix}{key}".rstrip(".") or "the document"
        return ScenarioWrong(f"{self._file}: {name} {says}")
