"""The steps of a heal as the plugin reports them: printed in its pod, as lines of JSON, and read outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver.errors import ConfigError
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.output import document

KIND = "HealStep"


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process on the node that has a GPU open.

    ``pod`` is the UID of its pod, or ``namespace/name`` once that is known; None for a process in no pod.
    """

    process_id: int
    name: str
    pod: str | None = None

    def __str__(self) -> str:
        return f"process {self.process_id} ({self.name}{f' of pod {self.pod}' if self.pod else ''})"


@dataclass(frozen=True, slots=True)
class HealStep:
    """How far a heal is: ``looked``, ``waits``, ``resets``, ``healed``, or ``failed`` with a ``message``.

    ``gpus`` are reset together. ``claims`` hold devices of them, as ``namespace/name``.
    """

    step: str
    gpus: tuple[PciAddress, ...] = ()
    claims: tuple[str, ...] = ()
    processes: tuple[UsingProcess, ...] = ()
    message: str = ""

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        found = {
            "step": self.step,
            "gpus": [str(pci) for pci in self.gpus],
            "claims": list(self.claims),
            "processes": [
                {"processId": one.process_id, "name": one.name, **({"podUid": one.pod} if one.pod else {})}
                for one in self.processes
            ],
            **({"message": self.message} if self.message else {}),
        }
        return document(KIND, found)


def read_step(line: bytes) -> HealStep:
    """The step in a line; raises ConfigError for anything else."""
    try:
        found: Mapping[str, Any] = decode_json(line)
        processes = (
            UsingProcess(int(one["processId"]), str(one["name"]), one.get("podUid"))
            for one in found["processes"]
        )
        return HealStep(
            str(found["step"]),
            tuple(map(PciAddress.parse, found["gpus"])),
            tuple(map(str, found["claims"])),
            tuple(processes),
            str(found.get("message", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the plugin's pod sent an unknown answer: {line[:200]!r}",
            "update the driver on the node, or gpuctl, to the same version",
        ) from error
