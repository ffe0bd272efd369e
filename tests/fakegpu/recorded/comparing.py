"""How a fake machine differs from the recording that it was made of."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.gpus import FakeMachine, NvmlCallFailed, PciAddress
from tools.hardware.recording import CALLS, MACHINE, VERSIONS
from tools.hardware.stand_ins import StandIns

MIB = 2**20

SAID: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        (
            *(*VERSIONS, "device_count", "pci", "uuid", "minor", "index", "name", "brand", "architecture"),
            *("compute_capability", "addressing_mode", "fabric", "module_id", "vgpu_types"),
            *("nvlinks", "gpu_instance_profiles", "gpu_instance_placements"),
        ),
        lambda answer: answer,
    ),
    "memory_bytes": lambda answer: answer // MIB,
    "memory_use": lambda answer: answer["reserved_bytes"] // MIB,
    "mig_mode": lambda answer: answer["enabled"],
    "virtualization": lambda answer: answer or "none",
    "licensable_features": lambda answer: [
        (one["product"], one["licensed"]) for one in answer if one["enabled"]
    ],
}
"""The calls whose answers a machine file says, and the part of each answer that it says.

It says nothing about use, health, modes, processes, MIG instances, and which NUMA node NVML reports where
sysfs shows one.
"""

MAY_FAIL = frozenset({"brand", "licensable_features", "memory_use", "nvlinks", "virtualization"})
"""Calls that fail on a real GPU where the fake one answers that there is nothing, or the reverse."""


class _Plain(StandIns):
    """Leaves texts and ids of processes as they are: those of a recording are stand-ins already."""

    def text(self, text: str) -> str:
        return text

    def process(self, number: int) -> int:
        return number


def differences(folder: Path, *, everything: bool = False) -> Iterator[str]:
    """The calls of a recording that the fake machine of its machine file answers in another way.

    ``everything``: all calls are compared, also those that a machine file says nothing about.
    """
    nvml = FakeMachine.open(f"fake:{folder / MACHINE}").nvml()
    nvml.init()
    for one in json.loads((folder / CALLS).read_text()):
        method = one["call"]
        if one.get("hangs") or not (everything or method in SAID):
            continue
        asked = nvml if "gpu" not in one else nvml.device_by_pci(PciAddress.parse(one["gpu"]))
        found = _asked(asked, method, one.get("arguments", ()))
        recorded = _result(one, method)
        if not everything:
            if ("code" in found) != ("code" in recorded) and method in MAY_FAIL:
                continue
            found, recorded = _said(method, found), _said(method, recorded)
        if found != recorded:
            yield f"{one.get('gpu', 'node')} {method} {one.get('arguments', '')}: {recorded}, now {found}"


def _asked(asked: object, method: str, arguments: list[int]) -> Mapping[str, Any]:
    try:
        answer = getattr(asked, method)(*arguments)
    except NvmlCallFailed as error:
        return {"code": error.code}
    return _result({"answer": json.loads(json.dumps(_Plain().answer(answer, method)))}, method)


def _result(recorded: Mapping[str, Any], method: str) -> Mapping[str, Any]:
    """The answer or the return code of a call. A machine file does not say which link of a GPU is which."""
    found = {key: recorded[key] for key in ("code", "answer") if key in recorded}
    if method == "nvlinks" and "answer" in found:
        return {"answer": sorted(found["answer"], key=str)}
    return found


def _said(method: str, result: Mapping[str, Any]) -> Any:
    """What a machine file says of a result; not with which code a call fails."""
    return "fails" if "code" in result else SAID[method](result["answer"])
