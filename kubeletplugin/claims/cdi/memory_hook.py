"""How the container runtime calls gpu-memory-hook, which keeps a container from starting without its limit.

For MPS it keeps a container from starting in which CUDA would not show all of its devices.

A createRuntime hook runs on the host, in the runtime's own namespaces, once the container has its control
group and before any of its processes runs (OCI runtime specification). If it fails, the container fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.claims.cdi.spec import CdiHook, Edits

MEMORY_HOOK = "gpu-memory-hook"

WAITS_SECONDS = 30
"""How long the hook waits for the plugin, which may be restarting or waiting for memory itself.

It is long, since a container whose hook fails has failed, and with restartPolicy Never so has its pod.
"""

TIMEOUT_SECONDS = 35
"""When the runtime kills the hook: after the hook's own timeout, which gives a reason.

The kubelet waits two minutes for its runtime (runtimeRequestTimeout).
"""

# A hook without an environment inherits the runtime's, whose Go variables could change how it behaves.
_ENVIRONMENT = ("GOTRACEBACK=none",)


@dataclass(frozen=True, slots=True)
class MemoryHook:
    """The hook's program, and the folder of the sockets that it connects to, both as paths on the host."""

    program: str
    sockets: str


def memory_sockets(data_dir: Path) -> Path:
    """The folder of the sockets, below the plugin's own folder."""
    return data_dir / "memory" / "sockets"


def memory_hook_edits(claim_uid: str, cdi_device: str, hook: MemoryHook) -> Edits:
    """The edits by which the runtime calls the hook before a container of the claim starts with this device.

    A container with several devices of a claim calls it for each. Calling it twice for one is harmless.
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


def mps_hook(request: str, pipes: str, hook: MemoryHook) -> CdiHook:
    """The hook that looks, before a container starts, whether MPS hides one of its devices.

    A process is the client of one daemon, and sees only that daemon's devices. ``pipes`` is the host's folder
    with the pipes of the device's daemon, ``request`` the path of the metadata of its request.
    """
    arguments = (MEMORY_HOOK, "mps", f"--request={request}", f"--pipes={pipes}")
    return CdiHook("createRuntime", hook.program, arguments, _ENVIRONMENT, TIMEOUT_SECONDS)
