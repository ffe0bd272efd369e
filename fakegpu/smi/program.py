"""nvidia-smi of a fake machine: lists, modes, time-slices and resets, in the words of the real one.

Exit codes are NVML's return codes, as those of the real program. Some texts are made up, because no report of
the real ones was found.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from driver.errors import ConfigError
from driver.nvml.api import Code, NotSupported, NvmlCallFailed
from driver.nvml.mig import MigDevice, partition_name
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.capabilities import partition_nodes, visible_nodes
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import MachineSpec
from fakegpu.nvml.fake_nvml import FakeDevice
from fakegpu.smi.topology import TOPOLOGY, matrix_lines

_MODES: dict[str, ComputeMode] = {
    "0": "default", "DEFAULT": "default", "2": "prohibited", "PROHIBITED": "prohibited",
    "3": "exclusive-process", "EXCLUSIVE_PROCESS": "exclusive-process",
}  # fmt: skip
_TIME_SLICES = ("Default", "Short", "Medium", "Long")
OTHER_ERROR = 255
"""The exit code for return codes above 255, such as UNKNOWN (999): an exit status has 8 bits."""

_REASONS: dict[int, str] = {
    Code.NOT_SUPPORTED: "Not Supported",
    Code.NO_PERMISSION: "Insufficient Permissions",
    Code.INVALID_ARGUMENT: "Invalid Argument",
    Code.GPU_IS_LOST: "GPU is lost",
}
_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)

# Before Ampere, GPUs that NVLinks connect can only be reset together (nvidia-smi(1), --gpu-reset).
_RESET_TOGETHER = frozenset({"Pascal", "Volta", "Turing"})

_IN_USE = (
    "currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
    "application such as an X server, or a monitoring application such as another instance of nvidia-smi). "
    "Please first kill all processes using {} and all compute applications running in the system."
)


class _Refusal(Exception):
    """The arguments are invalid; the message says why."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Refusal(message)


class Smi:
    """One run of nvidia-smi. It sees the GPUs whose device nodes exist, in /dev or below its driver root.

    ``visible`` are the device nodes of a container; GPUs and partitions without theirs are not seen then.
    """

    def __init__(self, machine: FakeMachine, root: Path, visible: frozenset[str] | None = None) -> None:
        self._machine = machine
        self._root = root
        self._visible = visible
        self._nvml = machine.nvml()

    def run(self, words: Sequence[str]) -> int:
        """Run with these arguments; returns the exit code. Raises NvmlCallFailed."""
        if words[:1] == ["compute-policy"]:
            return self._compute_policy(words[1:])
        if list(words) == TOPOLOGY.split():
            return self._topology()
        parser = _Parser(prog="nvidia-smi", add_help=False, allow_abbrev=False)
        parser.add_argument("-L", "--list-gpus", action="store_true")
        parser.add_argument("--version", action="store_true")
        parser.add_argument("-i", "--id")
        parser.add_argument("-c", "--compute-mode", choices=sorted(_MODES))
        parser.add_argument("-r", "--gpu-reset", action="store_true")
        options = parser.parse_args(words)
        if options.gpu_reset:
            return self._reset(options.id)
        self._nvml.init()
        if options.version:
            return self._version()
        chosen = self._chosen(options.id)
        if not chosen:
            return _nothing_found()
        if options.compute_mode is None:
            return self._list(chosen)
        return self._set_compute_mode(chosen, _MODES[options.compute_mode])

    def _reset(self, text: str | None) -> int:
        """Reset the GPUs of ``-i``, or all of them."""
        # No NVML session here, unless to fail as it does: its handles would keep the GPUs in use.
        if not self._machine.state.driver_loaded:
            self._nvml.init()
        every = self._machine.state.listed()
        try:
            gpus = every if text is None else [self._named(word) for word in text.split(",")]
        except ConfigError:
            return _nothing_found()
        return reset_gpus(self._machine, gpus, _say)

    def _named(self, word: str) -> PciAddress:
        if word.isdecimal():
            return self._machine.pci(int(word))
        try:
            return self._machine.pci(PciAddress.parse(word))
        except ValueError:
            return self._machine.pci(word)

    def _topology(self) -> int:
        self._nvml.init()
        slots = [self._machine.spec.slot(device.pci()) for _, device in self._chosen(None)]
        if not slots:
            return _nothing_found()
        for line in matrix_lines(slots):
            _say(line)
        return 0

    def _version(self) -> int:
        driver = self._nvml.driver_version()
        _say(f"NVIDIA-SMI version  : {driver}")
        _say(f"NVML version        : {driver.rpartition('.')[0] if driver.count('.') > 1 else driver}")
        _say(f"DRIVER version      : {driver}")
        _say(f"CUDA Version        : {self._nvml.cuda_driver_version()}")
        return 0

    def _chosen(self, text: str | None) -> list[tuple[int, FakeDevice]]:
        """The GPUs of ``-i`` with their indexes, or all GPUs; none if one of those named is not seen."""
        found: list[tuple[int, FakeDevice]] = []
        for index in range(self._nvml.device_count()):
            device = self._nvml.device_by_index(index)
            if self._sees(f"/dev/nvidia{device.minor()}"):
                # In a container NVML counts only the GPUs that it sees.
                found.append((index if self._visible is None else len(found), device))
        if text is None:
            return found
        wanted = [[gpu for gpu in found if _is_named(*gpu, word)] for word in text.split(",")]
        return [gpu for gpus in wanted for gpu in gpus] if all(wanted) else []

    def _sees(self, node: str) -> bool:
        if self._visible is not None:
            return node in self._visible
        return Path(node).exists() or (self._root / node.lstrip("/")).exists()

    def _sees_partition(self, gpu_minor: int, mig: MigDevice) -> bool:
        """Whether a partition is seen."""
        # The host has the capability nodes of all partitions.
        if self._visible is None:
            return True
        nodes = partition_nodes(gpu_minor, mig.gpu_instance_id, mig.compute_instance_id)
        return self._visible.issuperset(nodes)

    def _list(self, chosen: list[tuple[int, FakeDevice]]) -> int:
        for index, device in chosen:
            _say(f"GPU {index}: {device.name()} (UUID: {device.uuid()})")
            instances = {gi.id: gi.profile_id for gi in device.gpu_instances()} if _has_mig(device) else {}
            profiles = (
                {profile.id: profile for profile in device.gpu_instance_profiles()} if instances else {}
            )
            seen = [mig for mig in device.mig_devices() if self._sees_partition(device.minor(), mig)]
            for number, mig in enumerate(seen):
                profile = profiles[instances[mig.gpu_instance_id]]
                name = partition_name(profile, mig.compute_instance_slices)
                _say(f"  MIG {name:<12}Device {number:>2}: (UUID: {mig.uuid})")
        return 0

    def _set_compute_mode(self, chosen: list[tuple[int, FakeDevice]], mode: ComputeMode) -> int:
        word = mode.replace("-", "_").upper()
        for _, device in chosen:
            place = bus_id(device.pci())
            if device.compute_mode() == mode:
                _say(f"Compute mode is already set to {word} for GPU {place}.")
                continue
            try:
                device.set_compute_mode(mode)
            except NotSupported:
                # The real program only warns, and ends with 0.
                _say(f"Setting compute mode to {word} is not supported for GPU {place}.")
                _say("Treating as warning and moving on.")
                continue
            except NvmlCallFailed as error:
                _say(f"Unable to set the compute mode for GPU {place}: {_reason(error)}")
                _say("Terminating early due to previous errors.")
                return error.code
            _say(f"Set compute mode to {word} for GPU {place}.")
        _say("All done.")
        return 0

    def _compute_policy(self, words: Sequence[str]) -> int:
        parser = _Parser(prog="nvidia-smi compute-policy", add_help=False, allow_abbrev=False)
        parser.add_argument("-i", "--id")
        parser.add_argument("-l", "--list", action="store_true")
        parser.add_argument("--set-timeslice", type=int, choices=range(len(_TIME_SLICES)))
        options = parser.parse_args(words)
        self._nvml.init()
        chosen = self._chosen(options.id)
        if not chosen:
            return _nothing_found()
        if options.set_timeslice is not None:
            return _set_time_slice(chosen, options.set_timeslice)
        if not options.list:
            raise _Refusal("neither --list nor --set-timeslice")
        return _list_policies(chosen)


def _set_time_slice(chosen: list[tuple[int, FakeDevice]], number: int) -> int:
    value = _TIME_SLICES[number]
    for index, device in chosen:
        try:
            device.set_time_slice(number)
        except NvmlCallFailed as error:
            _say(f"Failed to set timeslice policy with value {value} for GPU {index} : {_reason(error)}")
            _say(f"Failed to set timeslice for requested devices : {_reason(error)}")
            return error.code
        _say(f"Successfully set timeslice policy with value {value} for GPU {index}")
    return 0


def _list_policies(chosen: list[tuple[int, FakeDevice]]) -> int:
    line = "+" + "-" * 48 + "+"
    _say(f"{line}\n| {'GPU compute policies:':<47}|")
    _say(f"| {'GPU     Name                   Value':<47}|\n|{'=' * 48}|")
    for index, device in chosen:
        try:
            value = _TIME_SLICES[device.time_slice()]
        except NotSupported:
            value = "N/A"
        _say(f"|{index:>4}     {'Timeslice':<23}{value:<16}|\n{line}")
    return 0


def _has_mig(device: FakeDevice) -> bool:
    try:
        return device.mig_mode().enabled
    except NotSupported:
        return False


def _is_named(index: int, device: FakeDevice, word: str) -> bool:
    if word in (str(index), device.uuid()):
        return True
    try:
        return PciAddress.parse(word) == device.pci()
    except ValueError:
        return False


def _reason(error: NvmlCallFailed) -> str:
    return _REASONS.get(error.code, "Unknown Error")


def bus_id(pci: PciAddress) -> str:
    """An address as NVML prints it: with eight digits of the domain, where sysfs has four."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _nothing_found() -> int:
    _say("No devices were found")
    return int(Code.NOT_FOUND)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def reset_gpus(machine: FakeMachine, gpus: Sequence[PciAddress], say: Callable[[str], None]) -> int:
    """Reset GPUs together, or say why not; returns the exit code.

    As with the real program, no GPU may be open in any process, and before Ampere all GPUs that NVLinks
    connect have to be named together.
    """
    # No reset reaches a GPU that fell off the bus.
    for pci in gpus:
        if machine.state.gpus[pci].lost:
            say(f"Unable to determine the device handle for GPU {pci}: GPU is lost. Reboot the system")
            return int(Code.GPU_IS_LOST)
    lacking = sorted(set().union(*(linked(machine.spec, pci) for pci in gpus)).difference(gpus))
    if lacking:
        names = ", ".join(map(bus_id, lacking))
        say(f"GPUs that are connected by NVLink have to be reset together; also name {names}")
        return int(Code.INVALID_ARGUMENT)
    holds = machine.nvml().store.holds
    used = [pci for pci in gpus if holds.is_held(pci) or machine.state.gpus[pci].process_ids]
    if not used:
        used = [pci for pci in gpus if not _reset(machine, pci, say)]
    if used:
        say("The following GPUs could not be reset:")
        for pci in used:
            say(f"  GPU {bus_id(pci)}: In use by another client")
        devices, them = (
            ("1 device is", "this device")
            if len(used) == 1
            else (f"{len(used)} devices are", "these devices")
        )
        say(f"\n{devices} {_IN_USE.format(them)}")
        return int(Code.IN_USE)
    say("All done.")
    return 0


def _reset(machine: FakeMachine, pci: PciAddress, say: Callable[[str], None]) -> bool:
    """Reset one GPU; returns whether it was reset, which fails while it has CUDA clients."""
    try:
        machine.reset(pci)
    except ConfigError:
        return False
    say(f"GPU {bus_id(pci)} was successfully reset.")
    return True


def linked(spec: MachineSpec, pci: PciAddress) -> set[PciAddress]:
    """The GPUs that have to be reset together with one, itself among them."""
    found, following = {pci}, [pci]
    while spec.product.architecture in _RESET_TOGETHER and following:
        for end in spec.slot(following.pop()).links:
            others = {end.remote} if end.remote else set()
            # NVSwitches connect all GPUs that have links into them.
            if end.kind == "switch":
                others = {slot.pci for slot in spec.slots if any(one.kind == "switch" for one in slot.links)}
            for other in others - found:
                if other is not None:
                    found.add(other)
                    following.append(other)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run as ``python -m fakegpu.smi.program MACHINE ROOT PROGRAM [ARGUMENT...]``; returns the exit code."""
    flag, root, _, *words = arguments
    try:
        code = Smi(FakeMachine.open(flag), Path(root), visible_nodes(os.environ)).run(words)
    except _Refusal as refusal:
        _say(f"Invalid combination of input arguments ({refusal}). Please run 'nvidia-smi -h' for help.")
        return int(Code.INVALID_ARGUMENT)
    except NvmlCallFailed as error:
        unreachable = f"Unable to determine the device handle for GPU {error.subject}: {_reason(error)}"
        _say(_NO_DRIVER if error.code == Code.DRIVER_NOT_LOADED else unreachable)
        code = error.code
    return min(code, OTHER_ERROR)


if __name__ == "__main__":
    # Python ignores SIGPIPE. A program in C is ended by it silently when the reader of its output has gone.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
