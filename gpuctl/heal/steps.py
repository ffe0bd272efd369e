"""The steps of a heal as the plugin reports them: printed in its pod, as lines of JSON, and read outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driver.errors import ConfigError
from driver.kube.decode import decode_json


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process on the node that has a GPU open; in no pod if neither is known."""

    process_id: int
    name: str
    """What it calls itself."""
    pod_uid: str | None = None
    """The UID of its pod, as the node knows it."""
    pod: str | None = None
    """Its pod, namespace/name; the UID of one that is not known."""

    def __str__(self) -> str:
        return f"process {self.process_id} ({self.name}{f' of pod {self.pod}' if self.pod else ''})"


@dataclass(frozen=True, slots=True)
class HealStep:
    """What `gpuctl heal --here` prints, one line for each step."""

    step: str
    """The step that it has reached: looked, waits, resets, healed or failed."""
    gpus: tuple[str, ...] = ()
    """The PCI addresses of the GPUs that are reset together."""
    claims: tuple[str, ...] = ()
    """The claims that have something of them, as namespace/name."""
    processes: tuple[UsingProcess, ...] = ()
    """The processes that have one of them open."""
    message: str | None = None
    """Why it failed."""


def read_step(line: bytes) -> HealStep:
    """The step in a line; raises ConfigError for anything else."""
    try:
        found: Any = decode_json(line)
        processes = (
            UsingProcess(int(one["processId"]), str(one["name"]), one.get("podUid"))
            for one in found["processes"]
        )
        gpus, claims = (tuple(map(str, found[name])) for name in ("gpus", "claims"))
        return HealStep(str(found["step"]), gpus, claims, tuple(processes), found.get("message"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the plugin's pod sent an unknown answer: {line[:200]!r}",
            "update the driver on the node, or gpuctl, to the same version",
        ) from error
