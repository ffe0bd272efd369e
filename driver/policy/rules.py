"""The rules of the node configuration: in which forms GPUs are offered, as an admin writes it in YAML.

    - when: gpu.pciBusID == "0000:8a:00.0"
      offer: hidden
    - when: gpu.migCapable
      mig: {layout: all-balanced}
    - shared: {strategy: TimeSlicing, shares: 4}

``when`` is a CEL expression over ``gpu``; a rule without it matches every GPU. The first rule that matches
decides. A GPU without a matching rule is offered whole, or as the partitions that an admin made.
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
from driver.kinds.kind import PolicyField
from driver.kinds.registry import KINDS
from driver.kinds.vgpu.field import offer_of
from driver.kinds.vgpu.kind import may_get_virtual
from driver.nvml.pci_address import PciAddress
from driver.policy.predicate import ValueUnknown, compile_predicate, holds

_NVML_CALLS = {
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
"""The values of a GPU that a rule can use, each with the NVML call that gives it."""

_ALWAYS_FROM_NVML = ("uuid", "index", "minor")
"""The values that every GPU in NVML has, and no other GPU."""

_FROM_SYSFS = ("pciBusID", "pcieRoot", "numaNode")
"""The values that sysfs gives for every PCI function; one that is missing there does not exist."""

Values = dict[str, bool | int | str]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is offered of the GPUs for which ``when`` is true; None means all GPUs."""

    when: str | None
    policy: GpuPolicy


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The rules in the order in which they are tried, and how faults of GPUs are judged."""

    rules: tuple[Rule, ...] = ()
    health: HealthRules = field(default_factory=HealthRules)

    def policy_of(self, gpu: Gpu) -> GpuPolicy:
        """The policy of this GPU.

        Raises ConfigError if a rule cannot be evaluated for it, and ValueUnknown if a value that a rule uses
        is not known yet.
        """
        values = selectable(gpu)
        unanswered = {name for name, call in _NVML_CALLS.items() if call in gpu.unanswered}
        missing = unanswered.difference(values)
        return self._policy(values, missing, "NVML does not report")

    def policy_of_function(self, function: PciFunction) -> GpuPolicy:
        """The policy of a GPU that is not bound to the NVIDIA driver; raises as ``policy_of`` does.

        A rule can use what sysfs gives; all other values are not known.
        """
        values = _selectable_function(function)
        missing = {*_NVML_CALLS, *_ALWAYS_FROM_NVML}.difference(values, _FROM_SYSFS)
        return self._policy(
            values, missing, f"while {function.pci} is not bound to the NVIDIA driver, nothing reports"
        )

    def _policy(self, values: Values, missing: Collection[str], why_missing: str) -> GpuPolicy:
        for rule in self.rules:
            # Without the value a later rule might be applied by mistake. A text search is enough: an
            # expression that only has the name in a string costs one more reading.
            used = sorted(name for name in missing if rule.when is not None and name in rule.when)
            if used:
                raise ValueUnknown(f"{why_missing} {', '.join(used)}, which the rules use")
            if rule.when is None or holds(rule.when, "gpu", values):
                return rule.policy
        return GpuPolicy()


def _selectable_function(function: PciFunction) -> Values:
    """The values that a rule can use of a GPU that NVML does not list; unknown ones are absent."""
    values = {
        "pciBusID": str(function.pci),
        "pcieRoot": function.pcie_root,
        "numaNode": function.numa_node,
        "productName": product_name(function.device_id),
    }
    return {name: value for name, value in values.items() if value is not None}


def selectable(gpu: Gpu) -> Values:
    """The values that a rule can use of a GPU; unknown ones are absent."""
    profile = parse_profile(gpu.vgpu_profile) if gpu.vgpu_profile else None
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


def read_rules(listed: Any, path: str, errors: list[str]) -> NodeConfig:
    """The rules in a parsed list; each mistake is added to ``errors`` and begins with its path."""
    if not isinstance(listed, list):
        errors.append(f"{path}: must be a list")
        return NodeConfig()
    return NodeConfig(tuple(_rule(rule, f"{path}[{index}]", errors) for index, rule in enumerate(listed)))


def unknown_fields(mapping: Mapping[Any, Any], known: set[str], path: str, errors: list[str]) -> None:
    """Add an error for each field that is not ``known``."""
    errors.extend(f"{path}{key}: unknown field" for key in mapping if key not in known)


def _rule(rule: Any, path: str, errors: list[str]) -> Rule:
    fields = KINDS.policy_fields
    names = ["offer", *(field.name for field in fields)]
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    if not isinstance(rule, dict):
        errors.append(f"{path}: must be a mapping with {listed}, and optionally when")
        return Rule(None, GpuPolicy(HIDDEN))
    unknown_fields(rule, {"when", *names}, f"{path}.", errors)
    if not rule.keys() & set(names):
        errors.append(f"{path}: must have {listed}")
    given = [field for field in fields if field.name in rule]
    values = {field.name: field.read(rule[field.name], f"{path}.{field.name}", errors) for field in given}
    policy = _with_form(_policy(values), rule, given, KINDS.forms, path, errors)
    errors.extend(f"{path}.{problem}" for field in fields for problem in field.contradictions(policy))
    return Rule(_when(rule.get("when"), path, errors), policy)


def _policy(values: Mapping[str, Any]) -> GpuPolicy:
    """The policy with the values of a rule's fields, without the form."""
    own = {name: values[name] for name in ("mig", "shared") if name in values}
    return GpuPolicy(**own, more={name: value for name, value in values.items() if name not in own})


def _with_form(
    policy: GpuPolicy,
    rule: Mapping[str, Any],
    given: Iterable[PolicyField],
    forms: Collection[str],
    path: str,
    errors: list[str],
) -> GpuPolicy:
    """The policy with the form that the rule names, or that its fields imply."""
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
    """The GPUs of vGPU hosts whose virtual functions are off, and whose rule says ``virtualFunctions``."""
    if config is None:
        return frozenset()
    return frozenset(
        gpu.pci for gpu in inventory.gpus if may_get_virtual(gpu, inventory) and _is_wanted(gpu, config)
    )


def _is_wanted(gpu: Gpu, config: NodeConfig) -> bool:
    try:
        offer = offer_of(config.policy_of(gpu))
    except ConfigError:
        return False  # node_offers reports the error
    return offer is not None and offer.enables_virtual
