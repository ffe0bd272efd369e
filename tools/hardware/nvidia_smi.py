"""The check that nvidia-smi says the same as NVML, which it asks itself: else a value is read wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from driver.errors import DriverError
from driver.hardware.gpu import Inventory
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms, Said, run_program
from tools.hardware.smi_differences import Comparison, compare
from tools.hardware.smi_xml import MOST_CHARACTERS, SmiUnreadable, read_log

_SMI = "nvidia-smi"
_SECONDS = 60.0
"""Without persistence mode the kernel first initialises each GPU, which takes seconds."""
_MOST_SHOWN = 200


@check
def nvidia_smi(subject: Subject) -> Finding:
    """Whether `nvidia-smi -q -x` says the same as NVML about the node, its GPUs and their MIG devices.

    Fails if a value differs, or nvidia-smi fails, hangs or prints no log; warns about what it prints besides.
    """
    if subject.is_fake:
        return skipped(f"{_SMI} of a fake machine prints no log")
    inventory, files = require(subject.seen.inventory), require(subject.seen.driver_files)
    if not any(path.endswith(f"/{_SMI}") for path in files.binaries):
        return skipped(f"driver {files.version} is installed without {_SMI}")
    try:
        return compare_smi(inventory, run_smi(subject, ("-q", "-x")))
    except DriverError as error:
        return fail(error.what, error.way_out)


def compare_smi(inventory: Inventory, said: Said) -> Finding:
    """Compare NVML's answers with what nvidia-smi printed; raises SmiUnreadable."""
    try:
        log = read_log("\n".join(said.lines))
    except SmiUnreadable as error:
        raise SmiUnreadable(f"{error.what} (exit code {said.code})", error.way_out) from error
    found = compare(inventory, log)
    if found.differences:
        return fail(
            f"nvidia-smi and NVML differ in {counted(len(found.differences), 'value')} of "
            f"{found.same + len(found.differences)}",
            "one of both is read wrongly, or the GPU changed in between",
            [*found.differences, *_not_compared(found)],
        )
    if said.code != 0 or log.beside:
        # It ends with 14 and a warning if the inforom of a board is broken.
        return warn(
            f"nvidia-smi agrees with NVML in {counted(found.same, 'value')}, but ended with {said.code} and "
            "printed more than its log",
            "look up these lines, and the NVIDIA driver's messages in the kernel log (dmesg)",
            [line[:_MOST_SHOWN] for line in log.beside],
        )
    gpus, values = counted(len(inventory.gpus), "GPU"), counted(found.same, "value")
    return ok(f"nvidia-smi agrees with NVML about {gpus} in {values}", _not_compared(found))


def _not_compared(found: Comparison) -> list[str]:
    """Lines with the values that only one of both has."""
    sides = (("NVML", found.only_nvml), (_SMI, found.only_smi))
    return [
        f"not compared, since only {side} has it: {', '.join(sorted(names))}"
        for side, names in sides
        if names
    ]


def run_smi(subject: Subject, words: Sequence[str], timeout_seconds: float = _SECONDS) -> Said:
    """Run nvidia-smi of the driver root; raises DriverError."""
    with TemporaryDirectory(prefix="gpu-dra-") as links:
        programs = DriverPrograms(InstalledDriver(subject.places.roots()), Path(links))
        return run_program(
            programs.find(_SMI), words, timeout_seconds=timeout_seconds, most_output_bytes=MOST_CHARACTERS
        )
