"""The rules of the node configuration: in which forms GPUs are offered, as an admin writes it in YAML.

    - when: gpu.pciBusID == "0000:8a:00.0"
      offer: hidden
    - when: gpu.migCapable
      mig: {layout: all-balanced}
    - shared: {strategy: TimeSlicing, shares: 4}

``when`` is a CEL expression over ``gpu``; a rule without it matches every GPU. The first rule that
matches decides; a GPU that no rule matches is offered whole, or as the partitions that an admin made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driver.devices.gpu_policy import HIDDEN, GpuPolicy
from driver.errors import ConfigError
from driver.hardware.functions import PciFunction
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.pci import product_name
from driver.hardware.vgpu import parse_profile
from driver.health.health_rules import HealthRules
from driver.kinds.kind import Kinds, PolicyField
from driver.kinds.vgpu.field import offer_of
from driver.kinds.vgpu.kind import may_get_virtual
from driver.nvml.pci_address import PciAddress
from driver.policy.predicate import NotTold, compile_predicate, holds

_TOLD_BY = {
    "productName": "name",
    "brand": "brand",
    "architecture": "architecture",
    "memoryBytes": "memory_bytes",
    "numaNode": "numa_node",
    "migCapable": "mig_mode",
    "migEnabled": "mig_mode",
    "virtualization": "virtualization",
    "vgpuKind": "name",
}
"""What a rule can ask of a GPU -> the call of NVML that tells it."""

_OF_NVML = ("uuid", "index", "minor")
"""What else a rule can ask that NVML alone tells: without an answer NVML does not have the GPU."""

_OF_SYSFS = ("pciBusID", "pcieRoot", "numaNode")
"""What sysfs tells of every function; where it has no value, there is none."""

Values = dict[str, bool | int | str]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is offered of the GPUs for which ``when`` holds; None holds for all."""

    when: str | None
    policy: GpuPolicy


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The rules in the order in which they are tried, and how faults of GPUs are judged."""

    rules: tuple[Rule, ...] = ()
    health: HealthRules = field(default_factory=HealthRules)

    def policy_of(self, gpu: Gpu) -> GpuPolicy:
        """The policy of this GPU.

        Raises ConfigError when a rule that decides cannot be evaluated for it, and NotTold when a value that
        a rule asks for is not known: a later rule might be applied by mistake.
        """
        values = selectable(gpu)
        missing = {name for name, call in _TOLD_BY.items() if call in gpu.unanswered and name not in values}
        return self._policy(values, missing, "NVML does not tell")

    def policy_of_function(self, function: PciFunction) -> GpuPolicy:
        """The policy of a GPU that the NVIDIA driver does not have; raises as ``policy_of`` does.

        A rule can ask for what sysfs tells of it; all other values are not known.
        """
        values = _selectable_function(function)
        missing = {*_TOLD_BY, *_OF_NVML}.difference(values, _OF_SYSFS)
        return self._policy(
            values, missing, f"while the NVIDIA driver does not have {function.pci}, nobody tells"
        )

    def _policy(self, values: Values, missing: Collection[str], nobody_tells: str) -> GpuPolicy:
        for rule in self.rules:
            asked = sorted(name for name in missing if rule.when is not None and name in rule.when)
            if asked:
                raise NotTold(f"{nobody_tells} {', '.join(asked)}, which the rules ask for")
            if rule.when is None or holds(rule.when, "gpu", values):
                return rule.policy
        return GpuPolicy()


def _selectable_function(function: PciFunction) -> Values:
    """What a rule can ask of a GPU that NVML does not tell of; what is not known of it is absent."""
    values = {
        "pciBusID": str(function.pci),
        "pcieRoot": function.pcie_root,
        "numaNode": function.numa_node,
        "productName": product_name(function.device_id),
    }
    return {name: value for name, value in values.items() if value is not None}


def selectable(gpu: Gpu) -> Values:
    """What a rule can ask of a GPU; what is not known of it is absent."""
    profile = parse_profile(gpu.vgpu_profile or "")
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
        "vgpuKind": None if profile is None else profile.kind,
    }
    return {name: value for name, value in values.items() if value is not None}


def read_rules(listed: Any, kinds: Kinds, path: str, errors: list[str]) -> NodeConfig:
    """The rules in a list that YAML made; what is wrong is added to ``errors``, each with its path."""
    if not isinstance(listed, list):
        errors.append(f"{path}: must be a list")
        return NodeConfig()
    return NodeConfig(
        tuple(_rule(rule, kinds, f"{path}[{index}]", errors) for index, rule in enumerate(listed))
    )


def unknown_fields(mapping: Mapping[Any, Any], known: set[str], path: str, errors: list[str]) -> None:
    """Add an error for each field that is not ``known``."""
    errors.extend(f"{path}{key}: unknown field" for key in mapping if key not in known)


def _rule(rule: Any, kinds: Kinds, path: str, errors: list[str]) -> Rule:
    fields = kinds.policy_fields
    saying = ["offer", *(field.name for field in fields)]
    listed = f"{', '.join(saying[:-1])} or {saying[-1]}"
    if not isinstance(rule, dict):
        errors.append(f"{path}: must be a mapping with {listed} and, perhaps, when")
        return Rule(None, GpuPolicy(HIDDEN))
    unknown_fields(rule, {"when", *saying}, f"{path}.", errors)
    if not rule.keys() & set(saying):
        errors.append(f"{path}: must say {listed}")
    given = [field for field in fields if field.name in rule]
    says = {field.name: field.read(rule[field.name], f"{path}.{field.name}", errors) for field in given}
    policy = _with_form(_policy(says), rule, given, kinds.forms, path, errors)
    errors.extend(f"{path}.{problem}" for field in fields for problem in field.contradictions(policy))
    return Rule(_when(rule.get("when"), path, errors), policy)


def _policy(says: Mapping[str, Any]) -> GpuPolicy:
    """What the fields of a rule say, but for the form."""
    own = {name: says[name] for name in ("mig", "shared") if name in says}
    return GpuPolicy(**own, more={name: value for name, value in says.items() if name not in own})


def _with_form(
    policy: GpuPolicy,
    rule: Mapping[str, Any],
    given: Iterable[PolicyField],
    forms: Collection[str],
    path: str,
    errors: list[str],
) -> GpuPolicy:
    """The policy with the form that the rule says, or that its fields imply."""
    implied = next((form for field in given if (form := field.implied_form(policy))), policy.form)
    form = rule.get("offer", implied)
    if form not in (*forms, HIDDEN):
        errors.append(f"{path}.offer: must be one of {', '.join((*forms, HIDDEN))}")
        form = implied
    if form == "shared" and "shared" not in rule:
        errors.append(f"{path}.offer: must not be shared without the field shared, which says how")
    return replace(policy, form=form)


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


def virtual_to_enable(inventory: Inventory, config: NodeConfig | None) -> frozenset[PciAddress]:
    """The GPUs of vGPU hosts that have no virtual function on, where their rule says ``virtualFunctions``."""
    if config is None:
        return frozenset()
    return frozenset(
        gpu.pci for gpu in inventory.gpus if may_get_virtual(gpu, inventory) and _asks(gpu, config)
    )


def _asks(gpu: Gpu, config: NodeConfig) -> bool:
    try:
        offer = offer_of(config.policy_of(gpu))
    except ConfigError:
        return False  # the offers tell why
    return offer is not None and offer.enables_virtual
