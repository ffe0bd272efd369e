"""Says how the container runtime calls gpu-memory-hook, which holds a container back until it has its limit.

A createRuntime hook runs on the host, in the runtime's own namespaces, once the container has its control
group and before any of its processes runs (OCI runtime specification). Where it fails, the container does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.claims.cdi.spec import CdiHook, Edits

MEMORY_HOOK = "gpu-memory-hook"

WAITS_SECONDS = 30
"""How long the hook waits for the plugin, which may start again or wait for memory itself.

A container whose hook fails has ended, and with restartPolicy Never its pod has failed for good.
"""

TIMEOUT_SECONDS = 35
"""When the runtime ends the hook whatever it is at: later than the hook itself, which says why.

The kubelet waits two minutes for its runtime (runtimeRequestTimeout).
"""

# The hook inherits the runtime's environment where it is given none; of Go's variables none may change it.
_ENVIRONMENT = ("GOTRACEBACK=none",)


@dataclass(frozen=True, slots=True)
class MemoryHook:
    """The hook's program, and the folder of the sockets that it asks at, both as the host has them."""

    program: str
    sockets: str


def memory_sockets(data_dir: Path) -> Path:
    """The folder of the sockets below the plugin's own folder."""
    return data_dir / "memory" / "sockets"


def memory_hook_edits(claim_uid: str, cdi_device: str, hook: MemoryHook) -> Edits:
    """What makes the runtime ask the plugin before a container of the claim starts with this device.

    A container that has several devices of a claim asks for each. To ask twice for one does no harm.
    """
    arguments = (
        MEMORY_HOOK,
        f"--sockets={hook.sockets}",
        f"--claim={claim_uid}",
        f"--device={cdi_device}",
        f"--seconds={WAITS_SECONDS}",
    )
    call = CdiHook("createRuntime", hook.program, arguments, _ENVIRONMENT, TIMEOUT_SECONDS)
    return Edits(hooks=(call,), needs_driver=False)
