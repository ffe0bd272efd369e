"""Prepares a claim of each kind on one idle GPU with the real plugin, and brings the GPU back.

This process is the API server and the kubelet of the plugin. Everything that the driver writes is in a
temporary folder, except what it changes of the GPU; the undo record has that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from driver.devices.names import pool_name
from driver.errors import DriverError
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import iommu_group_of
from driver.nvml.deadline import Guard
from driver.nvml.pci_address import PciAddress
from driver.policy.config import parse_config
from driver.policy.offers import tainted_offers
from driver.slices.specs import lay_out
from envtest.child_processes import StartProcess, start_process
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.calls import knows_limits
from fakegpu.nvml.flag import fabric_from_flag
from gpuctl.cli.unread import Unread
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.demo.watchdog import watched_folder
from gpuctl.doctor.check import Finding, Result, fail, skipped
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change import guard
from gpuctl.verify.change.claim_server import claim_server
from gpuctl.verify.change.claims import Bench, Limits, try_all
from gpuctl.verify.change.gpu_state import gpu_tools, read_state, record_path
from gpuctl.verify.change.kinds import kinds_of, node_config
from gpuctl.verify.change.plugin import NODE, running_driver
from gpuctl.verify.change.undo import UndoRecord, restore, result, unfinished
from gpuctl.verify.checks.cuda_checks import program_environment
from gpuctl.verify.subject import Subject

Object = dict[str, Any]

_FOLDER_PREFIX = "gpu-dra-verify-"
_NO_GPU = "end what uses a GPU, and run this again"


def verify_changes(
    subject: Subject,
    say: Callable[[str], None],
    limits: Limits | None = None,
    start: StartProcess = start_process,
) -> tuple[Result, ...]:
    """Try claims of every kind on one idle GPU; afterwards everything is as before.

    Every problem is a result. Each step is announced before it is done. ``start`` starts the processes of
    the driver. Ctrl-C and SIGTERM end it by KeyboardInterrupt, after everything was brought back.
    """
    chosen = _chosen_gpu(subject)
    if isinstance(chosen, Finding):
        return (result("may-change", chosen),)
    say(f"try claims of every kind on GPU {chosen.gpu.pci}")
    verification = _Verification(subject, chosen, say, limits or Limits(), start)
    results: list[Result] = []
    with signals_end_it_once() as ending:
        try:
            results.extend(verification.run(recorded(subject.places, [chosen.gpu])))
        except (DriverError, OSError) as error:
            results.append(result("driver-runs", _failure(error)))
        finally:
            # A second Ctrl-C must not leave the machine as it is now.
            ending()
            if record_path(subject.places).exists():
                results += restore(subject.places, say)
    return tuple(results)


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """The GPUs that nobody uses, at least one; ``kept_open`` says who has some of them open all the same."""

    gpus: tuple[Gpu, ...]
    kept_open: Mapping[PciAddress, str]


def idle_gpus(subject: Subject) -> IdleGpus | Finding:
    """The GPUs that may be changed; or why none may be."""
    try:
        path = record_path(subject.places)
    except DriverError as error:
        return _failure(error)
    if not subject.is_fake and os.geteuid() != 0:
        return fail("only root may change GPUs", "run this as root")
    # Only root may look into its folder.
    if path.exists():
        return _failure(unfinished(path))
    refused = guard.refusals(subject)
    if refused.of_node:
        return fail("nothing may be changed on this machine", "mend what is named", refused.of_node)
    inventory = subject.seen.inventory
    gpus = () if isinstance(inventory, Unread) else inventory.gpus
    idle = tuple(gpu for gpu in gpus if gpu.pci not in refused.of_gpus)
    if not idle:
        named = tuple(f"{pci}: {why}" for pci, why in sorted(refused.of_gpus.items()))
        return fail("no GPU is idle", _NO_GPU, named)
    return IdleGpus(idle, refused.of_resets)


def recorded(places: Places, gpus: Iterable[Gpu]) -> UndoRecord:
    """Write down the state of GPUs before anything is changed; raises DriverError."""
    with gpu_tools(places) as tools:
        states = [read_state(tools, gpu.pci) for gpu in gpus]
    return UndoRecord(places, states)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The GPU that claims may change; ``keeps`` says who keeps its kernel driver from being changed."""

    gpu: Gpu
    keeps: str


def _chosen_gpu(subject: Subject) -> _Chosen | Finding:
    """The GPU that claims may change, preferably one with MIG; or why there is none."""
    idle = idle_gpus(subject)
    if isinstance(idle, Finding):
        return idle
    usable = [gpu for gpu in idle.gpus if gpu.virtualization != "host-vgpu"]
    if not usable:
        return skipped("these GPUs are made into vGPUs, and claims of vGPUs are not tried")
    gpu = max(usable, key=_forms)
    return _Chosen(gpu, idle.kept_open.get(gpu.pci, ""))


def _forms(gpu: Gpu) -> int:
    """How much can be tried on a GPU: more with partitions that need no reset."""
    if gpu.mig is None:
        return 0
    return 2 if gpu.mig.without_reset and not gpu.mig.enabled else 1


@dataclass(frozen=True, slots=True)
class _Verification:
    """The kinds that are tried on a GPU."""

    subject: Subject
    chosen: _Chosen
    say: Callable[[str], None]
    limits: Limits
    start: StartProcess

    def run(self, record: UndoRecord) -> Iterator[Result]:
        """Start the driver, try all kinds, and end the driver. Raises what its parts raise."""
        self.say("start the driver")
        places, gpu, subject = self.subject.places, self.chosen.gpu, self.subject
        no_passthrough = self._no_passthrough()
        slices = _published(self._inventory(), node_config(gpu, passthrough=not no_passthrough))
        devices = [device for one in slices for device in one["spec"].get("devices") or ()]
        self.say(f"the driver offers the GPU as {len(devices)} devices")
        with ExitStack() as cleanup:
            folder = cleanup.enter_context(watched_folder(_FOLDER_PREFIX))
            record.note_folder(folder)
            if subject.is_fake:
                _pretend_cgroups(places, folder)
            environment = cleanup.enter_context(program_environment(subject, folder))
            server = cleanup.enter_context(claim_server(slices, folder))
            start = partial(record.start_noted, self.start)
            driver = cleanup.enter_context(running_driver(places, folder, start, server.kubeconfig))
            before, note = record.gpus[0], record.note_process
            bench = Bench(subject, gpu, before, server, driver, environment, self.say, note, self.limits)
            yield from try_all(bench, kinds_of(gpu, devices, no_passthrough=no_passthrough))
            self.say("end the driver")

    def _inventory(self) -> Inventory:
        """The GPUs now, with the fabric that their claims need."""
        subject, guard = self.subject, Guard()
        places = subject.places
        fabric = fabric_from_flag(places.nvml, places.roots())
        discovery = Discovery(subject.open_nvml(), places.sysfs_root, guard, fabric)
        try:
            return discovery.snapshot()
        finally:
            discovery.close()
            guard.close()

    def _no_passthrough(self) -> str:
        """Why the GPU cannot be given to a virtual machine; empty if it may be possible."""
        group = iommu_group_of(self.subject.places.sysfs_root, self.chosen.gpu.pci)
        if group is None:
            return "no IOMMU guards the GPU"
        others = [str(one.pci) for one in group.gpus if one.pci != self.chosen.gpu.pci]
        return f"its IOMMU group also has {', '.join(others)}" if others else self.chosen.keeps


def _pretend_cgroups(places: Places, folder: Path) -> None:
    machine = FakeMachine.open(places.nvml)
    if knows_limits(machine.state.driver_version) and not machine.state.pretend_cgroups:
        machine.pretend_cgroups(folder / "cgroups")


def _published(inventory: Inventory, offered: Object) -> list[Object]:
    """The slices that the controller would publish of a node with this configuration."""
    offers = tainted_offers(inventory, parse_config(yaml.safe_dump(offered), "the node configuration"))
    layout = lay_out(
        offers.devices,
        pool=pool_name(NODE),
        node=NODE,
        counter_sets=offers.counter_sets,
    )
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{NODE}-{number}", "resourceVersion": "1"},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
        for number, spec in enumerate(layout.specs)
    ]


def _failure(error: Exception) -> Finding:
    if isinstance(error, DriverError):
        return fail(error.what, error.way_out)
    return fail(f"{error}".partition("\n")[0], "look at this machine's logs")
