"""The node configuration: one file of rules for all nodes, with rules of their own for pools of nodes.

    version: v1
    pools:
      - name: inference
        nodeSelector: {matchLabels: {pool: inference}}
        rules:
          - mig: {layout: all-balanced}
    rules:
      - offer: whole
    health:
      evict: [needs-reset, lost]

The first pool whose selector a node's labels meet decides; ``rules`` are those of all other nodes, and
``health`` is for all of them. What is wrong with one pool's entry is kept with it, so that it does no harm
to the nodes of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from driver.devices.gpu_policy import HIDDEN
from driver.errors import ConfigError
from driver.health.health_rules import read_health_rules
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS
from driver.policy.predicate import MAX_EXPRESSION_CHARACTERS
from driver.policy.rules import NodeConfig, read_rules, unknown_fields
from driver.policy.strict_yaml import load_strictly
from kubernetes_rules.selectors import label_selector_errors, label_selector_matches

Labels = Mapping[str, str]

_EXPLAINED = "see docs/node-configuration.md"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """An entry of the file: which nodes, and their rules.

    Without a name it is the entry of the nodes that no pool takes in. ``errors`` says what is wrong with it.
    A pool with a wrong selector, which is None then, may be meant for any node.
    """

    name: str
    selector: Mapping[str, Any] | None
    rules: NodeConfig
    errors: tuple[str, ...] = ()

    def takes(self, labels: Labels) -> bool:
        """Whether a node with these labels is of the pool, as far as is known."""
        return not self.name or self.selector is None or label_selector_matches(self.selector, labels)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries of the file ``name`` in the order in which they are tried; the last takes every node."""

    name: str
    entries: tuple[Pool, ...]

    @property
    def has_pools(self) -> bool:
        """Whether it takes a node's labels to know its rules."""
        return len(self.entries) > 1

    def pool_of(self, labels: Labels) -> Pool:
        """The entry of a node with these labels; raises ConfigError with all that is wrong with it."""
        pool = next(entry for entry in self.entries if entry.takes(labels))
        if pool.errors:
            raise ConfigError(self._wrong(pool), _EXPLAINED)
        return pool

    def wrong_elsewhere(self, labels: Labels) -> Iterator[str]:
        """What is wrong with entries that do not concern a node with these labels, a sentence for each."""
        own = next(entry for entry in self.entries if entry.takes(labels))
        return (self._wrong(entry) for entry in self.entries if entry.errors and entry is not own)

    def _wrong(self, pool: Pool) -> str:
        where = f"the pool {pool.name} of " if pool.name else ""
        return f"{where}the node configuration {self.name} is wrong: {'; '.join(pool.errors)}"


def load_config(path: Path, labels: Labels | None = None, kinds: Kinds = KINDS) -> NodeConfig:
    """The rules of a node with these labels, as ``parse_config`` reads them from a file."""
    return _rules_of(load_file(path, kinds), labels)


def parse_config(
    text: str | bytes, name: str, labels: Labels | None = None, kinds: Kinds = KINDS
) -> NodeConfig:
    """The rules of a node with these labels; ``name`` names the text in errors.

    Raises ConfigError with every error of the node's entry, each with the path of its field, or when there
    are pools and the labels are not known.
    """
    return _rules_of(parse_file(text, name, kinds), labels)


def load_file(path: Path, kinds: Kinds = KINDS) -> ConfigFile:
    """Read a node configuration, whose rules have the fields of these ``kinds``.

    Raises ConfigError when it cannot be read, or when what is wrong concerns every node.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the node configuration {path} cannot be read: {error.strerror}", "check --config"
        ) from error
    return parse_file(text, str(path), kinds)


def parse_file(text: str | bytes, name: str, kinds: Kinds = KINDS) -> ConfigFile:
    """Read the text of a node configuration; raises ConfigError as ``load_file`` does."""
    try:
        document = load_strictly(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the node configuration {name} is no YAML: {error}", _EXPLAINED) from error
    errors: list[str] = []
    entries = tuple(_entries(document, kinds, errors))
    if errors or (len(entries) == 1 and entries[0].errors):
        everything = [*errors, *(error for entry in entries for error in entry.errors)]
        raise ConfigError(f"the node configuration {name} is wrong: " + "; ".join(everything), _EXPLAINED)
    return ConfigFile(name, entries)


def _entries(document: Any, kinds: Kinds, errors: list[str]) -> Iterator[Pool]:
    """The pools and the entry of all other nodes; what concerns every node is added to ``errors``."""
    if not isinstance(document, dict):
        errors.append("the document must be a mapping with version and rules")
        return
    unknown_fields(document, {"version", "pools", "rules", "health"}, "", errors)
    if document.get("version") != "v1":
        errors.append("version: must be v1")
    pools = document.get("pools", [])
    if not isinstance(pools, list):
        errors.append("pools: must be a list")
        pools = []
    health = read_health_rules(document.get("health", {}), "health", errors)
    names: set[str] = set()
    for index, entry in enumerate(pools):
        pool = _pool(entry, kinds, f"pools[{index}]", names)
        names.add(pool.name)
        yield replace(pool, rules=replace(pool.rules, health=health))
    own: list[str] = []
    rules = replace(read_rules(document.get("rules", []), kinds, "rules", own), health=health)
    yield Pool("", None, rules, tuple(own))


def _pool(entry: Any, kinds: Kinds, path: str, names: set[str]) -> Pool:
    if not isinstance(entry, dict):
        return Pool(
            path, None, NodeConfig(), (f"{path}: must be a mapping with name, nodeSelector and rules",)
        )
    errors: list[str] = []
    unknown_fields(entry, {"name", "nodeSelector", "rules"}, f"{path}.", errors)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        errors.append(f"{path}.name: must be a text")
    elif name in names:
        errors.append(f"{path}.name: another pool is called {name}")
    selector = entry.get("nodeSelector")
    wrong = label_selector_errors(selector, f"{path}.nodeSelector")
    rules = read_rules(entry.get("rules", []), kinds, f"{path}.rules", errors)
    known = name if isinstance(name, str) and name else path
    return Pool(known, None if wrong else selector, rules, (*errors, *wrong))


def _rules_of(file: ConfigFile, labels: Labels | None) -> NodeConfig:
    if labels is None and file.has_pools:
        raise ConfigError(
            f"the node configuration {file.name} has pools of nodes, and the node's labels are not known",
            "give the node's labels, to gpuctl with --node-labels",
        )
    return file.pool_of(labels or {}).rules


def rule_schema() -> Schema:
    """A rule: when, offer, and the fields of the kinds."""
    said = {field.name: field.schema for field in KINDS.policy_fields}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "when": {
                "description": "A CEL expression over gpu; without it the rule matches every GPU.",
                "type": "string",
                "maxLength": MAX_EXPRESSION_CHARACTERS,
            },
            "offer": {"description": "The form that is offered.", "enum": [*KINDS.forms, HIDDEN]},
            **said,
        },
        "anyOf": [{"required": [name]} for name in ("offer", *said)],
    }


def pool_schema() -> Schema:
    """A pool of nodes: its name, its selector, its rules."""
    expression = {
        "type": "object",
        "additionalProperties": False,
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "items": {"type": "string"}},
        },
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "nodeSelector"],
        "properties": {
            "name": {"description": "How logs and events name it.", "type": "string", "minLength": 1},
            "nodeSelector": {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": {"type": "array", "items": expression},
                },
            },
            "rules": {"type": "array", "items": rule_schema()},
        },
    }
