"""The node configuration: one file with the rules of all nodes, and other rules for pools of nodes.

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

The first pool whose selector matches the node's labels decides. ``rules`` is for nodes without a pool, and
``health`` for all nodes. A mistake in the entry of one pool does no harm to the nodes of others.
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
from driver.kinds.registry import KINDS
from driver.policy.predicate import MAX_EXPRESSION_CHARACTERS
from driver.policy.rules import NodeConfig, read_rules, unknown_fields
from driver.policy.strict_yaml import load_strictly, load_wrapped
from kubernetes_rules.selectors import label_selector_errors, label_selector_matches

Labels = Mapping[str, str]

_EXPLAINED = "see docs/configuration.md"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """An entry of the file: a selector of nodes, and their rules.

    The entry for nodes without a pool has no name. ``errors`` has the mistakes of the entry. A pool with a
    mistake in its selector has None as selector and may be meant for any node.
    """

    name: str
    selector: Mapping[str, Any] | None
    rules: NodeConfig
    errors: tuple[str, ...] = ()

    def takes(self, labels: Labels) -> bool:
        """Whether a node with these labels belongs to the pool, as far as that is known."""
        return not self.name or self.selector is None or label_selector_matches(self.selector, labels)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries of the file ``name`` in the order in which they are tried; the last takes every node."""

    name: str
    entries: tuple[Pool, ...]

    @property
    def has_pools(self) -> bool:
        """Whether a node's rules depend on its labels."""
        return len(self.entries) > 1

    def pool_of(self, labels: Labels) -> Pool:
        """The entry of a node with these labels; raises ConfigError with all mistakes of the entry."""
        pool = next(entry for entry in self.entries if entry.takes(labels))
        if pool.errors:
            raise ConfigError(self._wrong(pool), _EXPLAINED)
        return pool

    def wrong_elsewhere(self, labels: Labels) -> Iterator[str]:
        """A sentence for each entry with mistakes that does not concern a node with these labels."""
        own = next(entry for entry in self.entries if entry.takes(labels))
        return (self._wrong(entry) for entry in self.entries if entry.errors and entry is not own)

    def _wrong(self, pool: Pool) -> str:
        where = f"the pool {pool.name} of " if pool.name else ""
        return f"{where}the node configuration {self.name} is wrong: {'; '.join(pool.errors)}"


def load_config(path: Path, labels: Labels | None = None) -> NodeConfig:
    """The rules of a node with these labels, read from a file; raises as ``parse_config`` does."""
    return _rules_of(load_file(path), labels)


def parse_config(text: str | bytes, name: str, labels: Labels | None = None) -> NodeConfig:
    """The rules of a node with these labels; ``name`` names the text in errors.

    Raises ConfigError with every mistake of the node's entry and its field path, or if there are pools and
    the labels are not known.
    """
    return _rules_of(parse_file(text, name), labels)


def load_file(path: Path) -> ConfigFile:
    """Read a node configuration, whose rules have the fields of the kinds.

    Raises ConfigError if it cannot be read, or if a mistake concerns every node.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the node configuration {path}: {error.strerror}", "check --config"
        ) from error
    return parse_file(text, str(path))


def parse_file(text: str | bytes, name: str) -> ConfigFile:
    """Read the text of a node configuration; raises ConfigError as ``load_file`` does."""
    try:
        place, document = load_wrapped(text, name, "nodeConfig", what="node configuration")
        if place == "data" and isinstance(document, dict):
            document = load_strictly(document.get("config.yaml", ""))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the node configuration {name} is not YAML: {error}", _EXPLAINED) from error
    errors: list[str] = []
    entries = tuple(_entries(document, errors))
    if errors or (len(entries) == 1 and entries[0].errors):
        everything = [*errors, *(error for entry in entries for error in entry.errors)]
        raise ConfigError(f"the node configuration {name} is wrong: " + "; ".join(everything), _EXPLAINED)
    return ConfigFile(name, entries)


def _entries(document: Any, errors: list[str]) -> Iterator[Pool]:
    """The pools, then the entry for all other nodes; mistakes that concern all nodes go to ``errors``."""
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
        pool = _pool(entry, f"pools[{index}]", names)
        names.add(pool.name)
        yield replace(pool, rules=replace(pool.rules, health=health))
    own: list[str] = []
    rules = read_rules(document.get("rules", []), "rules", own)
    yield Pool("", None, replace(rules, health=health), tuple(own))


def _pool(entry: Any, path: str, names: set[str]) -> Pool:
    if not isinstance(entry, dict):
        return Pool(
            path, None, NodeConfig(), (f"{path}: must be a mapping with name, nodeSelector and rules",)
        )
    errors: list[str] = []
    unknown_fields(entry, {"name", "nodeSelector", "rules"}, f"{path}.", errors)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        errors.append(f"{path}.name: must be a string")
    elif name in names:
        errors.append(f"{path}.name: another pool has the name {name}")
    selector = entry.get("nodeSelector")
    wrong = label_selector_errors(selector, f"{path}.nodeSelector")
    rules = read_rules(entry.get("rules", []), f"{path}.rules", errors)
    known = name if isinstance(name, str) and name else path
    return Pool(known, None if wrong else selector, rules, (*errors, *wrong))


def _rules_of(file: ConfigFile, labels: Labels | None) -> NodeConfig:
    if labels is None and file.has_pools:
        raise ConfigError(
            f"the node configuration {file.name} has pools of nodes, but the node's labels are not known",
            "name them with --node-labels; --node-labels= stands for a node without labels",
        )
    return file.pool_of(labels or {}).rules


def rule_schema() -> Schema:
    """The JSON schema of a rule: when, offer, and the fields of the kinds."""
    fields = {field.name: field.schema for field in KINDS.policy_fields}
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
            **fields,
        },
        "anyOf": [{"required": [name]} for name in ("offer", *fields)],
    }


def pool_schema() -> Schema:
    """The JSON schema of a pool of nodes: its name, its selector, its rules."""
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
