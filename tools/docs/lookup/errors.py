"""The tables of errors, read from the modules that define them, and of the reasons of events."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driver.event_reasons import EventReason
from tools.docs.lookup.marked import code, table

ROOT = Path(__file__).resolve().parents[3]
_TOP = "driver.errors.DriverError"
_ROOMS = ("driver", "controller", "kubeletplugin")

_TAKEN_OVER = "[migrate](compare-and-migrate.md#what-is-taken-over)"

WAYS_OUT = {
    "DriverError": "what the message says",
    "ConfigError": (
        "correct the flag, the file or the [node configuration](configuration.md) that the message names"
    ),
    "NvmlError": "nothing at first: the driver tries again. If it lasts, check the [GPU's health](health.md)",
    "GpuLost": "drain the node and restart the machine ([heal a sick GPU](health.md#heal-a-sick-gpu))",
    "NotSupported": "nothing: without the feature a value stays unknown, or a device is not offered",
    "FabricError": "nothing at first. If it lasts, read the log of the fabric manager",
    "NotShared": "nothing, or start the fabric manager in shared NVSwitch mode ([topology](topology.md))",
    "ApiError": "nothing at first: the driver tries again. If it lasts, check that the API server answers",
    "AlreadyExists": "use the object that is there, or delete it",
    "Conflict": "nothing: the driver reads the object again",
    "Unauthorized": "check that the service account or the kubeconfig is still valid",
    "Forbidden": (
        "grant the permission that the message names ([all](security.md#permissions-in-the-cluster)); "
        "`gpuctl doctor` lists missing ones"
    ),
    "BadRequest": "report it: the driver made a wrong request",
    "Invalid": "report it, unless the message names a feature gate that is off",
    "ClaimRefused": "correct the claim, its template or its DeviceClass, and create the pod again",
    "MalformedConfig": (
        "correct the [opaque configuration](claims.md#configuration) at the paths that the message names, "
        "and create the claim again"
    ),
    "LateCall": "nothing: the kubelet gave up this call long ago",
    "ClaimBlocked": "nothing at first: the kubelet tries again. If it lasts, act on what the message names",
    "DeviceHeld": "end the pod of the claim that the plugin's log names",
    "InstanceInUse": "end the process that uses the partition, often a monitor",
    "FunctionInUse": "end the process that the message names",
    "FunctionInDoubt": "read the kernel log; a restart of the node ends it",
    "HardwareChanged": "delete the pod; the claim is then allocated again",
    "NodeIncomplete": "check that the NVIDIA driver is complete ([driver roots](install.md#driver-roots))",
    "StorageError": "check whether the disk is full or read-only",
    "CannotTakeOver": f"end the pods that the plugin's log names ({_TAKEN_OVER})",
    "NotUnderstood": f"end all pods with GPUs on the node, or restart it ({_TAKEN_OVER})",
    "NotRetired": "end the pods that still have devices, and uninstall again ([lifecycle](lifecycle.md))",
    "Refused": "do what the message says, and uninstall again ([lifecycle](lifecycle.md))",
    "ResetFailed": "see [heal a sick GPU](health.md#heal-a-sick-gpu)",
    "NoDaemon": "start [gpu-dra-mps](sharing.md#mps) on the node",
}
"""What to do about an error; an error that is not here has that of the error that it is a kind of."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An error and the one ``above`` it in the tree.

    ``retryable`` is whether the same call can succeed later without a change.
    """

    name: str
    above: Raised | None
    module: str
    meaning: str
    retryable: bool


def tree() -> tuple[Raised, ...]:
    """DriverError and all errors below it, each after the one that it is a kind of."""
    classes = [one for path in _modules() for one in _classes(path)]
    found: list[Raised] = []

    def add(one: _Class, above: Raised | None) -> None:
        said = _own_retryable(one.node)
        retryable = (above is None or above.retryable) if said is None else said
        # The meaning is the first paragraph of the docstring.
        meaning = (ast.get_docstring(one.node) or "").split("\n\n", maxsplit=1)[0].replace("``", "`")
        raised = Raised(one.node.name, above, one.module, meaning, retryable)
        found.append(raised)
        below = [
            other for other in classes if one.full_name in other.bases and not other.node.name.startswith("_")
        ]
        for other in sorted(below, key=lambda other: other.node.name):
            add(other, raised)

    add(next(one for one in classes if one.full_name == _TOP), None)
    return tuple(found)


def way_out(error: Raised) -> str:
    """What to do about an error."""
    return WAYS_OUT.get(error.name) or (way_out(error.above) if error.above else "")


def error_table() -> str:
    """The tree as a table; an arrow for each level."""
    rows = [
        (
            "→ " * _depth(one) + code(one.name),
            "retryable" if one.retryable else "permanent",
            one.meaning,
            way_out(one),
            code(one.module),
        )
        for one in tree()
    ]
    return table(("error", "kind", "meaning", "what to do", "defined in"), rows)


def event_table() -> str:
    """Every reason of an event, in the order of the code."""
    rows = [
        (code(reason.word), ", ".join(reason.on), reason.severity, reason.meaning, reason.way_out)
        for reason in EventReason
    ]
    return table(("reason", "on", "type", "meaning", "what to do"), rows)


def _depth(one: Raised) -> int:
    return 1 + _depth(one.above) if one.above else 0


def _modules() -> Iterator[Path]:
    for room in _ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


@dataclass(frozen=True, slots=True)
class _Class:
    """A class, the file that defines it, and the full names of its base classes."""

    node: ast.ClassDef
    module: str
    bases: frozenset[str]

    @property
    def full_name(self) -> str:
        return f"{self.module.removesuffix('.py').replace('/', '.')}.{self.node.name}"


def _classes(path: Path) -> Iterator[_Class]:
    module = path.relative_to(ROOT).as_posix()
    here = module.removesuffix(".py").replace("/", ".")
    parsed = ast.parse(path.read_text())
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(parsed)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(parsed):
        if isinstance(node, ast.ClassDef):
            bases = map(ast.unparse, node.bases)
            yield _Class(node, module, frozenset(imported.get(base, f"{here}.{base}") for base in bases))


def _own_retryable(node: ast.ClassDef) -> bool | None:
    """The class's own ``retryable``; None if it inherits it."""
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        value = getattr(line, "value", None)
        if isinstance(target, ast.Name) and target.id == "retryable" and isinstance(value, ast.Constant):
            return bool(value.value)
    return None
