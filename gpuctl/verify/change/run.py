"""Prepares a claim of each kind on one idle GPU with the real driver, and brings the GPU back.

The driver's processes run on an embedded cluster in this process. Everything that they write is in a
temporary folder, except what they change of the GPU; the undo record has that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.pci_view import iommu_group_of
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.client.errors import ClusterError
from envtest.client.waiting import wait_until
from envtest.embedded.cluster import FOLDER_PREFIX, EmbeddedCluster
from envtest.embedded.node.child_processes import StartProcess, start_process
from envtest.embedded.node.kubelet import KubeletTimes
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.calls import knows_limits
from gpuctl.cli.unread import Unread
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverProcesses, apply_manifests, played_hook
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.demo.watchdog import watched_folder
from gpuctl.doctor.check import Finding, Result, fail, skipped
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change import guard
from gpuctl.verify.change.claims import Bench, Limits, log_tails, try_all
from gpuctl.verify.change.container import containers_for
from gpuctl.verify.change.gpu_state import gpu_tools, read_state
from gpuctl.verify.change.kinds import kinds_of, node_config
from gpuctl.verify.change.undo import CONTAINERS, UndoRecord, record_path, restore, result, unfinished
from gpuctl.verify.subject import Figure, Found, Subject
from kubeletplugin.claims.cdi.hook import IMAGE_MEMORY_HOOK
from kubernetes_rules.pool_generations import is_complete, newest_slices

Object = dict[str, Any]

TIMES = KubeletTimes(scan=0.1, prepare_retry=(1.0, 2.0), unprepare_retry=1.0)
"""The kubelet's intervals: shorter than the real one's, since somebody waits for the report."""
_NO_GPU = "end what uses a GPU, and run this again"


def verify_changes(
    subject: Subject,
    say: Callable[[str], None],
    limits: Limits | None = None,
    start: StartProcess = start_process,
) -> Found:
    """Try claims of every kind on one idle GPU; afterwards everything is as before.

    Every problem is a result. Each step is announced before it is done. ``start`` starts the processes of
    the driver. Ctrl-C and SIGTERM end it by KeyboardInterrupt, after everything was brought back.
    """
    chosen = _chosen_gpu(subject)
    if isinstance(chosen, Finding):
        return Found((result("may-change", chosen),))
    say(f"try claims of every kind on GPU {chosen.gpu.pci}")
    verification = _Verification(subject, chosen, say, limits or Limits(), start)
    with signals_end_it_once() as ending:
        try:
            verification.run(recorded(subject.places, [chosen.gpu]))
        except (DriverError, ClusterError, OSError) as error:
            verification.results.append(result("driver-runs", _failure(error)))
        finally:
            # A second Ctrl-C must not leave the machine as it is now.
            ending()
            if record_path(subject.places).exists():
                verification.results += restore(subject.places, say)
    return Found(tuple(verification.results), tuple(verification.figures.values()))


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


@dataclass(slots=True)
class _Verification:
    """The kinds that are tried on a GPU, and what came of them so far."""

    subject: Subject
    chosen: _Chosen
    say: Callable[[str], None]
    limits: Limits
    start: StartProcess
    results: list[Result] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

    def run(self, record: UndoRecord) -> None:
        """Start the driver, try all kinds, and end the driver. Raises what its parts raise."""
        self.say("start the driver on an embedded cluster")
        places, gpu = self.subject.places, self.chosen.gpu
        no_limits, no_passthrough = self._no_limits(), self._no_passthrough()
        with ExitStack() as cleanup:
            folder = cleanup.enter_context(watched_folder(FOLDER_PREFIX))
            record.note_folder(folder)
            start = partial(record.start_noted, self.start)
            cluster = cleanup.enter_context(EmbeddedCluster(times=TIMES, folder=folder, start=start))
            driver = driver_on(places, cluster)
            containers = containers_for(self.subject, _new_folder(folder / CONTAINERS))
            if not isinstance(containers, str):
                cleanup.callback(containers.close)
            offered = node_config(gpu, memory_limits=not no_limits, passthrough=not no_passthrough)
            try:
                devices = _published(driver, offered)
            except (DriverError, ClusterError) as error:
                failed = replace(_failure(error), details=log_tails(driver))
                self.results.append(result("driver-runs", failed))
                return
            self.say(f"the driver offers the GPU as {len(devices)} devices")
            kinds = kinds_of(gpu, devices, no_limits=no_limits, no_passthrough=no_passthrough)
            bench = Bench(places, gpu, record.gpus[0], cluster, driver, containers, self.say, self.limits)
            for tried in try_all(bench, kinds):
                self.results.append(tried.result)
                for one in tried.figures:
                    self.figures.setdefault(one.what, one)
            self.say("end the driver")

    def _no_limits(self) -> str:
        """Why no container can be held to a memory limit here; empty if the driver may be able to."""
        if self.subject.is_fake or IMAGE_MEMORY_HOOK.is_file():
            return ""
        return (
            f"{IMAGE_MEMORY_HOOK} is not here: copy it there from the driver's image, or from what "
            "`make memory-hook` prints"
        )

    def _no_passthrough(self) -> str:
        """Why the GPU cannot be given to a virtual machine; empty if it may be possible."""
        group = iommu_group_of(self.subject.places.sysfs_root, self.chosen.gpu.pci)
        if group is None:
            return "no IOMMU guards the GPU"
        others = [str(one.pci) for one in group.gpus if one.pci != self.chosen.gpu.pci]
        return f"its IOMMU group also has {', '.join(others)}" if others else self.chosen.keeps


def _new_folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def driver_on(places: Places, cluster: EmbeddedCluster) -> DriverProcesses:
    """The driver's processes over these GPUs, on the first node of a cluster. None is started yet."""
    apply_manifests(cluster)
    node, proc, hook = cluster.nodes[0], Path("/proc"), None
    is_fake = places.nvml.startswith("fake:")
    if is_fake:
        # An empty one: the processes of this machine are not those of the fake node.
        proc = node.folder / "proc"
        proc.mkdir(parents=True)
        hook = played_hook(node.folder)
        machine = FakeMachine.open(places.nvml)
        if knows_limits(machine.state.driver_version) and not machine.state.pretend_cgroups:
            machine.pretend_cgroups(node.cgroup_dir)
    return DriverProcesses(
        cluster=cluster,
        node=node,
        nvml=places.nvml,
        driver_root=places.driver_root,
        sysfs_root=places.sysfs_root,
        proc_root=proc,
        own_shm=not is_fake and _may_mount(),
        host_root=places.host_root,
        launcher=BRISK,
        memory_hook=hook,
    )


def _may_mount() -> bool:
    """Whether mounts of this process reach the containers of the node."""
    try:
        is_host = Path("/proc/1/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False
    return is_host and os.geteuid() == 0


def _published(driver: DriverProcesses, offered: Object) -> tuple[Object, ...]:
    """Start the processes with a node configuration, and wait for what they publish; returns the devices."""
    config = driver.node.folder / "node-config.yaml"
    config.write_text(yaml.safe_dump(offered))
    driver.start_plugin("--log-level", "debug")
    # Without it, shares by MPS alone fail, and their result says why.
    with suppress(ClusterError):
        driver.start_mps()
    driver.start_controller("--config", str(config))
    driver.wait_serving()
    api = driver.cluster.api

    def devices() -> tuple[Object, ...] | None:
        pools = newest_slices(api.list_objects(paths.resource_slice()))
        found = tuple(
            device
            for slices in pools.values()
            for one in slices
            for device in one["spec"].get("devices") or ()
        )
        return found if found and all(map(is_complete, pools.values())) else None

    names = [driver.process(package).name for package in ("controller", "kubeletplugin")]
    return wait_until(names, driver.cluster.processes, devices)


def _failure(error: Exception) -> Finding:
    if isinstance(error, DriverError):
        return fail(error.what, error.way_out)
    return fail(f"{error}".partition("\n")[0], "see the logs below, if there are any")
