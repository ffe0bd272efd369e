"""The node configuration: in which forms a node's GPUs are offered, as rules that an admin writes in YAML.

    version: v1
    rules:
      - when: gpu.pciBusID == "0000:8a:00.0"
        offer: hidden
      - when: gpu.migCapable
        mig: {layout: all-balanced}
      - shared: {strategy: TimeSlicing, shares: 4}

``when`` is a CEL expression over ``gpu``; a rule without it matches every GPU. The first rule that
matches decides; a GPU that no rule matches is offered whole, or as the partitions that an admin made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from driver.devices.gpu_offer import Form, GpuOffer, MigOffer, SharedOffer
from driver.errors import ConfigError
from driver.hardware.gpu import Gpu
from driver.policy.mig_field import read_mig
from driver.policy.predicate import compile_predicate, holds
from driver.policy.sharing_field import read_shared
from driver.policy.strict_yaml import load_strictly

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Form",
    "GpuOffer",
    "MigOffer",
    "NodeConfig",
    "Rule",
    "SharedOffer",
    "load_config",
    "parse_config",
    "selectable",
]

_FORMS: tuple[Form, ...] = ("whole", "shared", "partitions", "hidden")
_SAYING = ("offer", "mig", "shared")
_EXPLAINED = "see docs/node-configuration.md"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is offered of the GPUs for which ``when`` holds; None holds for all."""

    when: str | None
    form: Form = "whole"
    mig: MigOffer = field(default_factory=MigOffer)
    shared: tuple[SharedOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The rules in the order in which they are tried."""

    rules: tuple[Rule, ...] = ()

    def offer_of(self, gpu: Gpu) -> GpuOffer:
        """What is offered of this GPU.

        Raises ConfigError when a rule that decides cannot be evaluated for it.
        """
        values = selectable(gpu)
        for rule in self.rules:
            if rule.when is None or holds(rule.when, "gpu", values):
                return GpuOffer(rule.form, rule.mig, rule.shared)
        return GpuOffer()


def selectable(gpu: Gpu) -> dict[str, bool | int | str]:
    """What a rule can ask of a GPU; what is not known of it is absent."""
    values: dict[str, bool | int | str | None] = {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "minor": gpu.minor,
        "pciBusID": str(gpu.pci),
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "memoryBytes": gpu.memory_bytes,
        "numaNode": gpu.numa_node,
        "pcieRoot": gpu.pcie_root,
        "migCapable": gpu.mig_capable,
        "migEnabled": gpu.mig_enabled,
        "virtualization": gpu.virtualization,
    }
    return {name: value for name, value in values.items() if value is not None}


def load_config(path: Path) -> NodeConfig:
    """Read and check a node configuration.

    Raises ConfigError with every error in it, each with the path of its field.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the node configuration {path} cannot be read: {error.strerror}", "check --config"
        ) from error
    return parse_config(text, str(path))


def parse_config(text: str | bytes, name: str) -> NodeConfig:
    """Read and check the text of a node configuration; ``name`` stands for it in errors.

    Raises ConfigError as ``load_config`` does.
    """
    try:
        document = load_strictly(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the node configuration {name} is no YAML: {error}", _EXPLAINED) from error
    errors: list[str] = []
    rules = _document(document, errors)
    if errors:
        raise ConfigError(f"the node configuration {name} is wrong: " + "; ".join(errors), _EXPLAINED)
    return NodeConfig(rules)


def _document(document: Any, errors: list[str]) -> tuple[Rule, ...]:
    if not isinstance(document, dict):
        errors.append("the document must be a mapping with version and rules")
        return ()
    _unknown(document, {"version", "rules"}, "", errors)
    if document.get("version") != "v1":
        errors.append("version: must be v1")
    rules = document.get("rules", [])
    if not isinstance(rules, list):
        errors.append("rules: must be a list")
        return ()
    return tuple(_rule(rule, f"rules[{index}]", errors) for index, rule in enumerate(rules))


def _rule(rule: Any, path: str, errors: list[str]) -> Rule:
    if not isinstance(rule, dict):
        errors.append(f"{path}: must be a mapping with offer, mig or shared and, perhaps, when")
        return Rule(None, "hidden")
    _unknown(rule, {"when", *_SAYING}, f"{path}.", errors)
    if not rule.keys() & _SAYING:
        errors.append(f"{path}: must say offer, mig or shared")
    mig = read_mig(rule["mig"], f"{path}.mig", errors) if "mig" in rule else MigOffer()
    shared = read_shared(rule["shared"], f"{path}.shared", errors) if "shared" in rule else ()
    form = _form(rule, mig, shared, path, errors)
    return Rule(_when(rule.get("when"), path, errors), form, mig, shared)


def _when(when: Any, path: str, errors: list[str]) -> str | None:
    if when is None:
        return None
    try:
        if not isinstance(when, str):
            raise ConfigError("must be a CEL expression in quotes")
        compile_predicate(when)
    except ConfigError as error:
        errors.append(f"{path}.when: {error.what}")
    return str(when)


def _form(
    rule: dict[Any, Any], mig: MigOffer, shared: tuple[SharedOffer, ...], path: str, errors: list[str]
) -> Form:
    """The form that a rule says, or that its ``mig`` and its ``shared`` imply."""
    implied = _implied(mig, sharing="shared" in rule)
    form = rule.get("offer", implied)
    if form not in _FORMS:
        errors.append(f"{path}.offer: must be one of {', '.join(_FORMS)}")
        return implied
    if form == "shared" and "shared" not in rule:
        errors.append(f"{path}.offer: must not be shared without the field shared, which says how")
    errors.extend(f"{path}.{problem}" for problem in _contradictions(form, mig, shared))
    return cast("Form", form)


def _implied(mig: MigOffer, *, sharing: bool) -> Form:
    if mig.mode == "layout":
        return "partitions"
    return "shared" if sharing and mig.mode != "dynamic" else "whole"


def _contradictions(form: Form, mig: MigOffer, shared: tuple[SharedOffer, ...]) -> Iterator[str]:
    if form == "whole" and mig.mode == "layout":
        yield "offer: must not be whole beside a layout, which offers partitions only"
    if form == "partitions" and mig.mode == "off":
        yield "offer: must not be partitions where mig is off"
    if form == "shared" and mig.mode == "dynamic":
        yield (
            "offer: must not be shared beside dynamic MIG: say whole to offer the GPU whole, shared and in "
            "partitions, or partitions to share the partitions"
        )
    if form == "shared" and mig.mode == "layout":
        yield "offer: must not be shared beside a layout: say partitions to share the partitions"
    if form in ("whole", "partitions") and any(one.fractional for one in shared):
        yield (
            "shared: fractional devices are whole GPUs and shares in one, "
            "so say offer: shared, and nothing of partitions"
        )


def _unknown(mapping: dict[Any, Any], known: set[str], path: str, errors: list[str]) -> None:
    errors.extend(f"{path}{key}: unknown field" for key in mapping if key not in known)
