"""The check that NVIDIA's generator of CDI specs gives containers the same as this driver."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from driver.errors import DriverError, NodeIncomplete
from driver.hardware.gpu import Gpu
from gpuctl.doctor.check import Finding, check, counted, ok, require, skipped, warn
from gpuctl.verify.subject import Subject
from kubeletplugin.claims.cdi.hook import Hook, asked_hook
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import Program, Said, run_program
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder, HostNow
from tools.conformance.cdi_edits import (
    ALL_CALLS,
    GENERATOR,
    generator_arguments,
    own_spec,
    taken_apart,
    unaccepted,
)

_HOOK = "/usr/bin/nvidia-cdi-hook"
"""The hook's path in both specs; where it really is makes no difference to compare."""

_PLACES = ("usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit")
_SECONDS = 60.0
_MOST_OUTPUT_BYTES = 16 * 1024 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNKNOWN_FLAG = "flag provided but not defined"


@check
def nvidia_ctk(subject: Subject) -> Finding:
    """Whether `nvidia-ctk cdi generate` gives containers the same as this driver, apart from the differences
    that docs/compatibility.md lists.

    Never fails; warns about other differences.
    """
    gpus = [gpu for gpu in subject.gpus if not gpu.mig_enabled]
    require(subject.seen.driver_files)
    if subject.is_fake:
        return skipped(f"{GENERATOR} asks the real NVML, which knows no fake machine")
    if not gpus:
        return skipped("all GPUs are in MIG mode, and only whole GPUs are compared")
    try:
        installed = InstalledDriver(subject.places.roots())
        program = _find(installed.now().path, subject.places.host_root)
        if program is None:
            return skipped(f"{GENERATOR} is not installed")
        return compare_specs(program, installed, subject.places.sysfs_root, gpus)
    except DriverError as error:
        return warn(f"the CDI specs cannot be compared: {error.what}", error.way_out)


def compare_specs(program: Path, installed: InstalledDriver, sysfs_root: Path, gpus: list[Gpu]) -> Finding:
    """Run the generator and compare; raises DriverError."""
    beside = program.with_name("nvidia-cdi-hook")
    # Ours would call what the installed release does not know, which is no difference of the drivers.
    hook = asked_hook(beside, _HOOK) if beside.is_file() else Hook(_HOOK, ALL_CALLS)
    root = installed.now().path
    dev_root = DeviceFolder.below(*HostNow(installed).roots()).root or "/"
    theirs = _generated(program, generator_arguments(root, Path(dev_root), hook.path))
    ours = own_spec(installed, sysfs_root, gpus, hook)
    found = unaccepted(theirs, ours)
    if found:
        return warn(
            f"{GENERATOR} and this driver differ in {counted(len(found), 'edit')} that no page explains",
            "report it with these lines",
            found,
        )
    edits = sum(len(taken_apart(one["containerEdits"])) for one in (ours, *ours["devices"]))
    return ok(f"{GENERATOR} makes the same {edits} edits for {counted(len(gpus), 'GPU')}")


def _find(root: Path, host_root: Path) -> Path | None:
    """The program, in PATH or below the driver root or the host's root; None without one."""
    in_path = shutil.which(GENERATOR)
    others = (base / folder / GENERATOR for base in (root, host_root) for folder in _PLACES)
    return Path(in_path) if in_path else next((path for path in others if os.access(path, os.X_OK)), None)


def _generated(program: Path, arguments: tuple[str, ...]) -> Any:
    """The spec that the generator prints; raises DriverError."""
    said = _run(program, arguments)
    if said.code != 0 and _UNKNOWN_FLAG in said.words:
        said = _run(program, arguments[:-2])
    text = "\n".join(said.lines)
    # Warnings may come before the spec.
    spec = re.search(r"^\{.*^\}", text, re.DOTALL | re.MULTILINE)
    try:
        return json.loads(spec[0] if spec else text)
    except ValueError as error:
        raise NodeIncomplete(
            f"{program} printed no CDI spec and ended with {said.code}: {said.words[:200]}",
            "run it on the node; releases before 1.17 lack options",
        ) from error


def _run(program: Path, arguments: tuple[str, ...]) -> Said:
    environment = {"PATH": os.environ.get("PATH", _PATH), "LC_ALL": "C"}
    return run_program(
        Program(program, environment),
        arguments,
        timeout_seconds=_SECONDS,
        most_output_bytes=_MOST_OUTPUT_BYTES,
    )
