"""Tries one kind of claim on a GPU: the real plugin prepares it, probes run with it, and it is given back."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from driver.devices.names import DRIVER_NAME
from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.pci_view import read_function
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.client.errors import ClusterError
from envtest.embedded.cluster import EmbeddedCluster
from gpuctl.demo.driver_node import DriverProcesses
from gpuctl.demo.journal_files import holding
from gpuctl.doctor.check import Finding, Result, fail, ok, skipped, warn
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change.container import Containers, RunningContainer
from gpuctl.verify.change.gpu_state import GpuState, GpuTools, differences, gpu_tools, read_state
from gpuctl.verify.change.kinds import Kind, Object
from gpuctl.verify.change.undo import result
from gpuctl.verify.subject import Figure
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name

NAMESPACE = "default"
_POLL_SECONDS = 0.05
_LOG_LINES = 12

_FIGURES: dict[tuple[str, str], tuple[str, float]] = {
    ("whole", "prepare"): ("prepare a whole GPU", 6.0),
    ("whole", "unprepare"): ("unprepare a whole GPU", 2.0),
    ("partition", "prepare"): ("create a MIG partition (prepare)", 38.0),
    ("partition", "unprepare"): ("destroy a MIG partition (unprepare)", 26.0),
    ("mps", "prepare"): ("start MPS (prepare)", 245.0),
    ("mps", "unprepare"): ("end MPS (unprepare)", 78.0),
    ("passthrough", "prepare"): ("bind to vfio (prepare)", 62.0),
    ("passthrough", "unprepare"): ("give back from vfio (unprepare)", 46.0),
}
"""What is timed of each form, and how many milliseconds it took on the fake hgx-h100, on two cores."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a step may take, in seconds. The kubelet itself waits 45 s for a prepare and tries again."""

    prepare: float = 120.0
    probe: float = 120.0
    unprepare: float = 120.0
    same_again: float = 30.0


class StepFailed(DriverError):
    """A step of a kind did not succeed; the message names it."""

    retryable = False


class NotBroughtBack(DriverError):
    """After a kind, the GPU is not as before, so no other kind can be tried."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Bench:
    """What the kinds are tried with: the driver at work on an embedded cluster, and one GPU of it.

    ``containers`` is why there are none, if there are none. ``before`` is the state of the GPU.
    """

    places: Places
    gpu: Gpu
    before: GpuState
    cluster: EmbeddedCluster
    driver: DriverProcesses
    containers: Containers | str
    say: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)

    @property
    def pci(self) -> PciAddress:
        """Where the GPU sits."""
        return self.gpu.pci


@dataclass(frozen=True, slots=True)
class Claim:
    """A prepared claim: its UID and its CDI devices."""

    name: str
    uid: str
    cdi_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a kind; ``stuck`` says why no other kind can be tried after it, empty if one can."""

    result: Result
    figures: tuple[Figure, ...] = ()
    stuck: str = ""


def try_kind(bench: Bench, kind: Kind) -> Tried:
    """Try a kind, and give everything back. Every error of it becomes a result that fails."""
    if kind.why_not:
        return Tried(result(kind.name, skipped(kind.why_not)))
    run = _Run(bench, kind)
    try:
        finding = run.forwards()
    except (DriverError, ClusterError) as error:
        finding = _failure(bench, error)
    try:
        run.back()
    except (DriverError, ClusterError) as error:
        if finding.status == "ok":
            finding = _failure(bench, error)
        else:
            finding = fail(finding.message, finding.way_out, (_words(error), *finding.details))
        return Tried(result(kind.name, finding), run.figures(), _words(error))
    return Tried(result(kind.name, finding), run.figures())


class _Run:
    """One kind while it is tried."""

    def __init__(self, bench: Bench, kind: Kind) -> None:
        self._bench = bench
        self._kind = kind
        self._api = bench.cluster.api
        self._claims: list[Claim] = []
        self._uids: list[str] = []

    def forwards(self) -> Finding:
        """Prepare the claims and run the probes; raises StepFailed, and what the parts raise."""
        self._api.apply(self._kind.device_class(self._bench.gpu))
        for number in range(self._kind.claims):
            self._say(f"prepare claim {number + 1} of {self._kind.claims}")
            self._claims.append(self._prepared(f"{self._kind.class_name}-{number}"))
        if self._kind.form == "passthrough":
            return self._bound()
        if isinstance(self._bench.containers, str):
            why = f"it was prepared; no probe ran with it, since {self._bench.containers}"
            return warn(why, "run this as root on a machine with runc")
        with ExitStack() as running:
            return self._probed(self._bench.containers, running)

    def back(self) -> None:
        """Delete the pods, wait until their claims are unprepared, and see that the GPU is as before.

        Raises NotBroughtBack.
        """
        bench, names = self._bench, self._names()
        if not names:
            return
        self._say("unprepare")
        for name in names:
            self._api.delete(paths.pod(name))
        left = self._wait(
            bench.limits.unprepare,
            lambda: "" if not (still := self._left()) else f"the node still has {', '.join(still)}",
        )
        for name in names:
            self._api.delete(paths.resource_claim(name))
        if left:
            raise NotBroughtBack(
                f"unprepare did not end within {bench.limits.unprepare:g} s: {left}", "see the plugin's log"
            )
        self._say("compare the GPU with what it was")
        left = self._wait(bench.limits.same_again, self._differs)
        if left:
            raise NotBroughtBack(f"after it, the GPU is not as before: {left}", "see the plugin's log")

    def figures(self) -> tuple[Figure, ...]:
        """How long prepare of the first claim and unprepare of the last one took in the plugin.

        The first one turns MIG mode on or starts the MPS daemon, and the last one ends that.
        """
        found = []
        for step, which in (("prepare", 0), ("unprepare", -1)):
            named, times = _FIGURES.get((self._kind.form, step)), self._milliseconds(step)
            if named is not None and times:
                found.append(Figure(named[0], times[which], named[1]))
        return tuple(found)

    def _say(self, what: str) -> None:
        self._bench.say(f"{self._kind.name}: {what}")

    def _names(self) -> list[str]:
        return [f"{self._kind.class_name}-{number}" for number in range(len(self._uids))]

    def _prepared(self, name: str) -> Claim:
        """Make a claim and a pod with it, and wait until the plugin has prepared it."""
        bench = self._bench
        claim = self._api.create(_claim(name, self._kind.class_name), NAMESPACE)
        self._uids.append(str(claim["metadata"]["uid"]))
        # None of its containers has the claim, which is prepared for it all the same: what the embedded
        # runtime would start with it is no process, and the probe must be the only user.
        self._api.create(_pod(name), NAMESPACE)
        why = self._wait(bench.limits.prepare, lambda: self._not_running(name))
        if why:
            raise StepFailed(
                f"prepare did not succeed within {bench.limits.prepare:g} s: {why}", "see the plugin's log"
            )
        info = bench.cluster.kubelets[0].claims.of(NAMESPACE, name)
        ids = () if info is None else tuple(one for each in info.devices[DRIVER_NAME] for one in each.cdi_ids)
        if not ids:
            raise StepFailed("the plugin named no CDI device for a prepared claim", "see its log")
        return Claim(name, self._uids[-1], ids)

    def _not_running(self, name: str) -> str:
        """Why the pod does not run yet, in the words of scheduler and kubelet; empty if it runs."""
        pod = self._api.get(paths.pod(name))
        status = pod.get("status", {})
        if status.get("phase") == "Running":
            return ""
        unscheduled = [
            str(one.get("message"))
            for one in status.get("conditions", ())
            if one["type"] == "PodScheduled" and one["status"] != "True" and one.get("message")
        ]
        events = [
            str(event["message"])
            for event in self._api.list_objects(paths.event(namespace=NAMESPACE))
            if event.get("involvedObject", {}).get("name") == name and event.get("type") == "Warning"
        ]
        return (unscheduled or events or [f"the pod is {status.get('phase', 'not seen yet')}"])[-1]

    def _bound(self) -> Finding:
        """Whether the kernel shows the GPU with vfio."""
        self._say("look at the kernel driver")
        function = read_function(self._bench.places.sysfs_root, self._bench.pci)
        if function is None or not function.on_vfio:
            driver = None if function is None else function.driver
            raise StepFailed(f"the GPU has the kernel driver {driver}, not vfio", "see the plugin's log")
        return ok(f"bound to {function.driver} and given back")

    def _probed(self, containers: Containers, running: ExitStack) -> Finding:
        """Run a probe with each claim, the later ones beside the earlier ones."""
        wrong: list[str] = []
        got: list[int] = []
        uuids = self._uuids()
        for number, claim in enumerate(self._claims):
            self._say("start the probe" if number == 0 else "start a second probe beside the first")
            words = _probe_words(self._bench.places, fill=self._kind.expected.share_bytes is not None)
            container = containers.start(self._bench.driver.node.cdi_dir, claim.cdi_ids, words)
            running.callback(container.end)
            which = "the probe" if number == 0 else "the second probe"
            said = _line_of(container, which, self._bench.limits.probe)
            found, allocated = self._judged(said, uuids)
            wrong += [f"{which}: {one}" for one in found]
            got.append(allocated)
        self._say("end the probes")
        running.close()
        if wrong:
            raise StepFailed("; ".join(wrong), "compare the CDI spec with what the container got")
        amounts = " and ".join(f"{one // (1 << 20)} MiB" for one in got)
        alone = "" if containers.isolated else ", in plain processes"
        return ok(f"the probe sees its device alone and computes; it got {amounts}{alone}")

    def _uuids(self) -> set[str]:
        """The UUIDs that CUDA may show of this kind's devices."""
        if self._kind.form != "partition":
            return {_bare(self._bench.gpu.uuid)}
        with gpu_tools(self._bench.places) as tools:
            return {_bare(one) for one in _new_partitions(tools, self._bench.pci, self._bench.before)}

    def _judged(self, said: Object, uuids: set[str]) -> tuple[list[str], int]:
        """What is wrong with what a probe said, and how many bytes it got."""
        error = said.get("error")
        if error:
            return [f"{error.get('call')} failed with {error.get('name')} ({error.get('code')})"], 0
        devices = said.get("devices") or []
        seen = [str(one.get("uuid")) for one in devices]
        if len(devices) != 1:
            return [f"it sees {len(devices)} devices, not one: {', '.join(seen)}"], 0
        (one,) = devices
        wrong = []
        if _bare(seen[0]) not in uuids:
            wrong.append(f"it sees {seen[0]}, which is not the device of its claim")
        # The second probe has another partition than the first.
        if self._kind.form == "partition":
            uuids.discard(_bare(seen[0]))
        if one.get("kernel") != "ok":
            wrong.append(f"the kernel did not run: {one.get('kernel')}")
        allocated = int(one.get("allocatedBytes") or 0)
        total, under_mps = int(one.get("totalBytes") or 0), one.get("underMps")
        wrong += self._kind.expected.wrong(total, allocated, under_mps=under_mps)
        return wrong, allocated

    def _left(self) -> tuple[str, ...]:
        """What the node still has of the claims: CDI specs, and journal entries that hold devices."""
        node = self._bench.driver.node
        specs = [name for uid in self._uids if (node.cdi_dir / (name := cdi_spec_file_name(uid))).exists()]
        held = set(holding(self._bench.driver.journal_dir))
        return (*specs, *(name for uid in self._uids if (name := f"{uid}.json") in held))

    def _differs(self) -> str:
        """What of the GPU is not as before, or why it cannot be read now; empty if all is as before."""
        before = self._bench.before
        try:
            with gpu_tools(self._bench.places) as tools:
                now = read_state(tools, self._bench.pci)
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

    def _milliseconds(self, step: str) -> list[float]:
        """How long a step of each claim took, by the plugin's log."""
        found = []
        for line in self._bench.driver.process("kubeletplugin").log.splitlines():
            if '"operation ended"' not in line or not any(uid in line for uid in self._uids):
                continue
            with _ignoring_other_lines():
                entry = json.loads(line)
                if entry.get("operation") == step and entry.get("uid") in self._uids:
                    found.append(float(entry["duration_ms"]))
        return found


@contextmanager
def _ignoring_other_lines() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError):
        return


def log_tails(driver: DriverProcesses) -> tuple[str, ...]:
    """The last lines of the logs of the driver's processes, each with the name of its process."""
    processes = driver.cluster.processes
    return tuple(
        f"{name}: {line}"
        for name in processes.names()
        for line in processes.log_tail(name).splitlines()[-_LOG_LINES:]
    )


def _failure(bench: Bench, error: Exception) -> Finding:
    way_out = error.way_out if isinstance(error, DriverError) else ""
    return fail(_words(error), way_out or "see the logs below", log_tails(bench.driver))


def _words(error: Exception) -> str:
    """The first line of what an error says; errors of the cluster have the ends of logs below it."""
    return error.what if isinstance(error, DriverError) else f"{error}".partition("\n")[0]


def _new_partitions(tools: GpuTools, pci: PciAddress, before: GpuState) -> list[str]:
    """The UUIDs of the partitions that were made since."""
    old = {one.id for one in before.instances}
    found = tools.discovery.on_gpu(pci, lambda device, watch: watch("mig_devices", device.mig_devices))
    return [one.uuid for one in found if one.gpu_instance_id not in old]


def _probe_words(places: Places, *, fill: bool) -> tuple[str, ...]:
    cuda = ("--cuda", places.nvml) if places.nvml.startswith("fake:") else ()
    return (sys.executable, "-m", "gpuctl.probe", "--hold", *(("--fill",) if fill else ()), *cuda)


def _line_of(container: RunningContainer, which: str, seconds: float) -> Object:
    """What a probe said; raises StepFailed if it is nothing that a probe says."""
    line = container.line(seconds)
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise StepFailed(f"{which} did not print a report: {line[:200]!r}", "see what it wrote")
    return said


def _bare(uuid: str) -> str:
    """A UUID without its kind: CUDA gives the same sixteen bytes for a GPU and for a partition."""
    return uuid.partition("-")[2].lower() or uuid.lower()


def _claim(name: str, device_class: str) -> Object:
    # Also on a GPU that the driver taints, as a vGPU without its license: what is wrong then shows here.
    exactly = {"deviceClassName": device_class, "tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _pod(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [{"name": "main", "image": "none", "imagePullPolicy": "Never"}],
        },
    }


def try_all(bench: Bench, kinds: Sequence[Kind]) -> Iterator[Tried]:
    """Try kinds one after the other; once the GPU is not brought back, those that follow are skipped."""
    stuck = ""
    for kind in kinds:
        if stuck and not kind.why_not:
            yield Tried(result(kind.name, skipped(f"not tried: {stuck}")))
            continue
        tried = try_kind(bench, kind)
        stuck = tried.stuck or stuck
        yield tried
