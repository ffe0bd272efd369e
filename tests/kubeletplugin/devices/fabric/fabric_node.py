"""A node whose NVSwitches are shared out, and claims by the modules of their GPUs."""

from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef

MACHINE = "hgx-h100-shared-nvswitch"
"""Eight H100 in shared NVSwitch mode."""
STEPS_OF_ACTIVATING = (
    "begun",
    "fabric noted",
    "fabric activated",
    "fabric active",
    "committed",
    "metadata written",
    "spec written",
)
STEPS_OF_DEACTIVATING = ("spec removed", "releasing", "fabric deactivated", "fabric forgotten", "released")


def position(node: FakeNode, module: int) -> int:
    """Where on the bus the GPU of a module is."""
    return next(at for at, pci in enumerate(node.gpus) if node.machine.spec.slot(pci).module_id == module)


def claim_modules(node: FakeNode, name: str, *modules: int) -> ClaimRef:
    """A claim that was given the GPUs of these modules."""
    return node.claim(name, *(position(node, module) for module in modules))


def prepared(node: FakeNode, name: str, *modules: int) -> ClaimRef:
    """The same, prepared."""
    return node.prepared(name, *(position(node, module) for module in modules))


def connected(node: FakeNode) -> tuple[int, ...]:
    """The partitions that the switches connect."""
    return node.machine.fabric.state.connected


def records(node: FakeNode) -> list[str]:
    """The partitions that the plugin has on record."""
    return sorted(path.stem for path in (node.boot_files / "fabric").glob("*.json"))
