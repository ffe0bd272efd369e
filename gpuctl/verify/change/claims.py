"""Tries one kind of claim on a GPU: the real plugin prepares it, probes run with it, and it is given back."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.pci_view import read_function
from driver.process.boot import boot_folder
from fakegpu.machine.capabilities import VISIBLE_NODES
from gpuctl.demo.journal_files import holding
from gpuctl.doctor.check import Result, fail, ok, skipped
from gpuctl.probe.answer import Answer
from gpuctl.probe.run import OK
from gpuctl.verify.change.claim_server import ClaimServer
from gpuctl.verify.change.gpu_state import GpuState, differences, gpu_tools, read_state
from gpuctl.verify.change.held_probe import control_group, held_probe, hold_to_limit
from gpuctl.verify.change.injected import Injected, injected
from gpuctl.verify.change.kinds import Kind, Object
from gpuctl.verify.change.plugin import NODE, Driver, StepFailed
from gpuctl.verify.change.undo import result
from gpuctl.verify.subject import Subject
from kubeletplugin.claims.cdi.spec import memory_sockets
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.errors import AllocationFailed

T = TypeVar("T")

NAMESPACE = "default"
_POLL_SECONDS = 0.05
_NO_WAY_OUT = "see the logs below"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a step may take, in seconds. The kubelet itself waits 45 s for a prepare and tries again."""

    prepare: float = 120.0
    probe: float = 120.0
    unprepare: float = 120.0
    same_again: float = 30.0


class NotBroughtBack(DriverError):
    """After a kind, the GPU is not as before, so no other kind can be tried."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Bench:
    """What the kinds are tried with: the driver at work, and one GPU, whose state before is ``before``.

    ``environment`` are the variables with which a program on this machine finds libcuda. ``note`` notes a
    process that has to be killed if this one is.
    """

    subject: Subject
    gpu: Gpu
    before: GpuState
    server: ClaimServer
    driver: Driver
    environment: Mapping[str, str]
    say: Callable[[str], None]
    note: Callable[[int], None]
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a kind; ``stuck`` says why no other kind can be tried after it, empty if one can."""

    result: Result
    stuck: str = ""


def try_all(bench: Bench, kinds: Sequence[Kind]) -> Iterator[Result]:
    """Try kinds one after the other; once the GPU is not brought back, those that follow are skipped."""
    stuck = ""
    for kind in kinds:
        if kind.why_not or stuck:
            yield result(kind.name, skipped(kind.why_not or f"not tried: {stuck}"))
            continue
        tried = _try_kind(bench, kind)
        stuck = tried.stuck
        yield tried.result


def _try_kind(bench: Bench, kind: Kind) -> Tried:
    """Try a kind, and give everything back. Every error of it becomes a result that fails."""
    run = _Run(bench, kind)
    failed: tuple[str, ...] = ()
    stuck = way_out = message = ""
    try:
        message = run.forwards()
    except (DriverError, AllocationFailed, OSError) as error:
        failed, way_out = (_words(error),), getattr(error, "way_out", "")
    try:
        run.back()
    except DriverError as error:
        failed, stuck, way_out = (*failed, error.what), error.what, way_out or error.way_out
    if not failed:
        return Tried(result(kind.name, ok(message, run.times())))
    finding = fail(failed[0], way_out or _NO_WAY_OUT, (*failed[1:], *bench.driver.log_tails()))
    return Tried(result(kind.name, finding), stuck)


class _Run:
    """One kind while it is tried."""

    def __init__(self, bench: Bench, kind: Kind) -> None:
        self._bench = bench
        self._kind = kind
        self._claims: list[Object] = []
        self._milliseconds: defaultdict[str, list[str]] = defaultdict(list)

    def forwards(self) -> str:
        """Prepare the claims and use them; returns what is well. Raises what the parts raise."""
        kind, bench = self._kind, self._bench
        allocator = Allocator(bench.server.slices, [kind.device_class(bench.gpu)], ())
        prepared: list[tuple[Injected, str]] = []
        for number in range(kind.claims):
            self._say(f"prepare claim {number + 1} of {kind.claims}")
            known = self._partitions()
            found = self._prepared(allocator, f"{kind.class_name}-{number}")
            prepared.append((found, next(iter(self._partitions() - known), bench.gpu.uuid)))
        if kind.form == "passthrough":
            return self._bound()
        with ExitStack() as running:
            return self._probed(prepared, running)

    def back(self) -> None:
        """Let the plugin give the claims back, and see that the GPU is as before. Raises NotBroughtBack."""
        bench = self._bench
        if not self._claims:
            return
        self._say("unprepare")
        try:
            for claim in self._claims:
                self._timed("unprepare", partial(bench.driver.unprepare, claim, bench.limits.unprepare))
        except StepFailed as error:
            raise NotBroughtBack(error.what, error.way_out) from error
        left = self._wait(bench.limits.unprepare, self._left)
        if left:
            raise NotBroughtBack(f"after unprepare the node still has {left}", "see the plugin's log")
        for claim in self._claims:
            bench.server.remove(claim)
        self._say("compare the GPU with what it was")
        left = self._wait(bench.limits.same_again, self._differs)
        if left:
            raise NotBroughtBack(f"after it, the GPU is not as before: {left}", "see the plugin's log")

    def times(self) -> tuple[str, ...]:
        """How long the plugin's calls took, a line for each step."""
        return tuple(f"{step}: {', '.join(each)}" for step, each in self._milliseconds.items())

    def _say(self, what: str) -> None:
        self._bench.say(f"{self._kind.name}: {what}")

    def _timed(self, step: str, call: Callable[[], T]) -> T:
        began = time.monotonic()
        answer = call()
        self._milliseconds[step].append(f"{(time.monotonic() - began) * 1000:.0f} ms")
        return answer

    def _prepared(self, allocator: Allocator, name: str) -> Injected:
        """Allocate a claim, have it prepared, and look at what a container would get with it."""
        bench, driver = self._bench, self._bench.driver
        claim = _claim(name, self._kind.class_name)
        found = allocator.allocate({"metadata": {"name": NODE}}, [claim])
        if found is None:
            raise StepFailed("no free device of the slices fits the claim", "report it with these slices")
        claim["status"] = {"allocation": found[0]}
        allocator.assume(claim)
        bench.server.put(claim)
        self._claims.append(claim)
        ids = self._timed("prepare", partial(driver.prepare, claim, bench.limits.prepare))
        if not ids:
            raise StepFailed("the plugin named no CDI device for a prepared claim", "see its log")
        spec = driver.cdi_dir / cdi_spec_file_name(claim["metadata"]["uid"])
        subject = bench.subject
        seen = injected(spec, ids, subject.places.host_root, numbers=not subject.is_fake)
        wrong = [*seen.wrong, *self._other_gpus(seen.gpu_nodes)]
        if wrong:
            raise StepFailed(f"a container would not get what was asked for: {'; '.join(wrong)}", "report it")
        return seen

    def _other_gpus(self, nodes: Sequence[str]) -> Iterator[str]:
        own = f"/dev/nvidia{self._bench.gpu.minor}"
        is_right = (
            nodes and not any(one.startswith("/dev/nvidia") for one in nodes)
            if self._kind.form == "passthrough"
            else list(nodes) == [own]
        )
        if not is_right:
            yield f"it would get the GPU nodes {', '.join(nodes) or 'none'}"

    def _partitions(self) -> set[str]:
        """The UUIDs of the partitions that were made since; none for a kind without partitions."""
        if self._kind.form != "partition":
            return set()
        old = {one.id for one in self._bench.before.instances}
        with gpu_tools(self._bench.subject.places) as tools:
            listed = tools.discovery.on_gpu(
                self._bench.gpu.pci, lambda device, watch: watch("mig_devices", device.mig_devices)
            )
        return {one.uuid for one in listed if one.gpu_instance_id not in old}

    def _bound(self) -> str:
        """Whether the kernel shows the GPU with vfio."""
        self._say("look at the kernel driver")
        function = read_function(self._bench.subject.places.sysfs_root, self._bench.gpu.pci)
        if function is None or not function.on_vfio:
            driver = None if function is None else function.driver
            raise StepFailed(f"the GPU has the kernel driver {driver}, not vfio", "see the plugin's log")
        return f"bound to {function.driver} and given back"

    def _probed(self, prepared: Sequence[tuple[Injected, str]], running: ExitStack) -> str:
        """Run a probe with each claim, the later ones beside the earlier ones."""
        wrong: list[str] = []
        got: list[int] = []
        for number, (device, gpu_uuid) in enumerate(prepared):
            self._say("start the probe" if number == 0 else "start a second probe beside the first")
            which = "the probe" if number == 0 else "the second probe"
            answer = self._answer(device, gpu_uuid, number, running)
            wrong += [f"{which}: {one}" for one in self._wrong(answer, gpu_uuid)]
            got += [one.allocated_bytes for one in answer.devices]
        self._say("end the probes")
        running.close()
        if wrong:
            raise StepFailed("; ".join(wrong), "compare the CDI spec with what the program got")
        amounts = " and ".join(f"{one // (1 << 20)} MiB" for one in got)
        return f"a container would get this device alone; a program used it and got {amounts}"

    def _answer(self, device: Injected, gpu_uuid: str, number: int, running: ExitStack) -> Answer:
        bench, subject = self._bench, self._bench.subject
        words: tuple[str, ...] = ()
        variables = {**bench.environment, **device.of_host()}
        if subject.is_fake:
            variables[VISIBLE_NODES] = ":".join(sorted(device.nodes))
        elif not self._kind.expected.mps:  # the daemon shows its clients no other GPU
            variables["CUDA_VISIBLE_DEVICES"] = gpu_uuid
        name = f"{self._kind.class_name}-{number}"
        for options in device.memory_calls:
            group, words, more = running.enter_context(control_group(name, subject.open_nvml()))
            variables |= more
            hold_to_limit(memory_sockets(bench.driver.data_dir), options, group)
        flags = ("--hold", *(("--fill",) if self._kind.expected.share_bytes is not None else ()))
        cuda = ("--cuda", subject.places.nvml) if subject.is_fake else ()
        command = (*words, sys.executable, "-m", "gpuctl.probe", *flags, *cuda)
        errors = bench.driver.folder / f"{name}.stderr"
        return running.enter_context(held_probe(command, variables, errors, bench.limits.probe, bench.note))

    def _wrong(self, answer: Answer, gpu_uuid: str) -> Iterator[str]:
        """What is wrong with what a probe said."""
        if answer.error is not None:
            yield str(answer.error)
            return
        seen = [str(one.uuid) for one in answer.devices]
        if len(seen) != 1:
            yield f"it sees {len(seen)} devices, not one: {', '.join(seen)}"
            return
        (one,) = answer.devices
        if _bare(seen[0]) != _bare(gpu_uuid):
            yield f"it sees {seen[0]}, which is not the device of its claim"
        if one.kernel != OK:
            yield f"the kernel did not run: {one.kernel}"
        total_bytes = one.total_bytes or 0
        yield from self._kind.expected.wrong(total_bytes, one.allocated_bytes, under_mps=one.under_mps)

    def _left(self) -> str:
        """What the node still has of the claims: CDI specs, and journal entries that hold devices."""
        driver, uids = self._bench.driver, [one["metadata"]["uid"] for one in self._claims]
        specs = [name for uid in uids if (driver.cdi_dir / (name := cdi_spec_file_name(uid))).exists()]
        held = set(holding(boot_folder(driver.data_dir) / "journal"))
        return ", ".join((*specs, *(name for uid in uids if (name := f"{uid}.json") in held)))

    def _differs(self) -> str:
        """What of the GPU is not as before, or why it cannot be read now; empty if all is as before."""
        before = self._bench.before
        try:
            with gpu_tools(self._bench.subject.places) as tools:
                now = read_state(tools, self._bench.gpu.pci)
        except DriverError as error:
            return error.what
        # The driver turns MIG mode off after the last partition. The end of the verification turns it on.
        if before.mig_enabled and not before.instances and now.mig_enabled is False:
            before = replace(before, mig_enabled=False)
        return "; ".join(differences(before, now))

    def _wait(self, seconds: float, why_not: Callable[[], str]) -> str:
        """Wait until there is no reason any more why something is not so; returns the last one."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while True:
            why = why_not()
            if not why or time.monotonic() > deadline:
                return why
            pause.wait(_POLL_SECONDS)


def _words(error: Exception) -> str:
    return error.what if isinstance(error, DriverError) else str(error)


def _bare(gpu_uuid: str) -> str:
    """A UUID without its kind: CUDA gives the same sixteen bytes for a GPU and for a partition."""
    return gpu_uuid.partition("-")[2].lower() or gpu_uuid.lower()


def _claim(name: str, device_class: str) -> Object:
    # Also on a GPU that the driver taints, as a vGPU without its license: what is wrong then shows here.
    exactly = {
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": str(uuid.uuid4())},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
