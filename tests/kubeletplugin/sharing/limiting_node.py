"""A node whose GPUs are published with memory limits, and the claims of tests for them."""

from pathlib import Path
from typing import Any

from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode
from tests.plugin import ClaimRef

MIB, GIB = 1 << 20, 1 << 30
L4 = (23034 - 470) * MIB
"""The memory of one GPU of the node, without what its driver keeps."""

FORMS = ("ts-4", "ts-mem", "mps-4", "mps-mem", "ts-frac-4")


def limiting(folder: Path, *, on_disk: bool = False) -> MemoryNode:
    """Four L4 with the hook for memory."""
    node = MemoryNode(folder, on_disk=on_disk)
    node.memory_hook = folder / "gpu-memory-hook"
    node.memory_hook.write_bytes(b"a program")
    node.memory_hook.chmod(0o755)
    node.driver_generation = "" if on_disk else "1"
    node.restart()
    publish(node)
    return node


def publish(node: FakeNode, *, limits: bool = True) -> None:
    """Have the slices say of each GPU, whole and shared, whether its memory is held."""
    names = [node.whole(gpu) for gpu in range(4)]
    names += [node.shared(form, gpu) for form in FORMS for gpu in range(4)]
    told: dict[str, Any] = {"type": {"string": "shared"}}
    if limits:
        told["memoryLimits"] = {"string": "cgroup"}
    node.published_attributes = dict.fromkeys(names, told)


def memory_of(node: FakeNode, ref: ClaimRef) -> int | None:
    return node.entry(ref).devices[0].memory_limit_bytes


def gib(node: FakeNode, name: str, amount: int, **more: Any) -> ClaimRef:
    """A claim of so many GiB of the first GPU."""
    return node.claim_shares(name, node.shared("ts-mem"), consumed={"memory": f"{amount}Gi"}, **more)


def hooks_of(node: FakeNode, ref: ClaimRef) -> list[str]:
    """The programs that the runtime runs before the container of a claim starts."""
    (device,) = node.spec(ref)["devices"]
    hooks = device["containerEdits"].get("hooks", ())
    return [Path(hook["path"]).name for hook in hooks if hook["hookName"] == "createRuntime"]
