"""Has the kernel load a module, and says why it could not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked, NodeIncomplete

if TYPE_CHECKING:
    from kubeletplugin.devices.host.kernel import Kernel


def load_module(kernel: Kernel, module: str, deadline_seconds: float, without: str) -> None:
    """Have the module loaded; raises NodeIncomplete where it cannot be, ClaimBlocked while it is not yet.

    ``without`` is what else can be done on a node that does not have it.
    """
    try:
        kernel.load_module(module, deadline_seconds)
    except TimeoutError as error:
        raise ClaimBlocked(
            f"the kernel module {module} was not loaded within {deadline_seconds:g} s",
            "it is tried again; look for what keeps it in the kernel log (dmesg)",
        ) from error
    except OSError as error:
        raise NodeIncomplete(
            f"the kernel module {module} cannot be loaded: {error.strerror or error}",
            f"install the kernel's modules on the node{without}",
        ) from error
