"""Counts what the driver does and serves the numbers to Prometheus.

Every counter exists at zero from the start, so that a rate is right from the first event on.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from driver.errors import DriverError
from driver.process.http_endpoint import CLIENT_SECONDS, HttpEndpoint
from driver.process.log import get_logger
from driver.process.outcome import OUTCOMES, Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from driver.process.service import Service

Operation = Literal["prepare", "unprepare", "publish"]
SliceVerb = Literal["create", "update", "delete"]
NvmlFailure = Literal["lost", "hung", "reset-required", "failing", "fabric", "error"]

BUCKETS_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5, 1, 2, 5, 10, 20, 45)
"""From a repeated prepare to the kubelet's deadline of 45 s."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """A MIG partition that a claim uses: the labels of ``gpu_dra_partition_info``.

    ``uuid`` is the partition's, ``parent_uuid`` and ``pci_bus_id`` (as sysfs writes it) its GPU's. The ids
    are NVML's, by which DCGM tells partitions of a GPU apart.
    """

    claim_namespace: str
    claim: str
    device: str
    profile: str
    uuid: str
    parent_uuid: str
    pci_bus_id: str
    gpu_instance_id: str
    compute_instance_id: str


@dataclass(frozen=True, slots=True)
class ShareUse:
    """A share of a GPU or a partition that a claim has: the labels of ``gpu_dra_share_info``.

    ``strategy`` is ``time-slicing`` or ``mps``. ``uuid`` is what CUDA knows the device by, ``pci_bus_id`` (as
    sysfs writes it) its GPU's. Limits that there are not are empty.
    """

    claim_namespace: str
    claim: str
    device: str
    share_id: str
    strategy: str
    uuid: str
    pci_bus_id: str
    shares: str
    memory_bytes: str
    active_thread_percentage: str
    pinned_memory_mib: str


@dataclass(frozen=True, slots=True)
class ClaimMemoryUse:
    """What the NVIDIA driver holds the containers of a claim to on a GPU, all together: labels, then bytes.

    ``guaranteed_bytes`` is theirs whatever others do, ``limit_bytes`` the most that they get. ``used_bytes``
    is None where it is not known.
    """

    claim_namespace: str
    claim: str
    device: str
    share_id: str
    uuid: str
    pci_bus_id: str
    guaranteed_bytes: int
    limit_bytes: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class ContainerMemoryUse:
    """The part of a claim's memory that one container has; as ``ClaimMemoryUse``."""

    claim_namespace: str
    claim: str
    claim_pod: str
    claim_container: str
    device: str
    share_id: str
    uuid: str
    pci_bus_id: str
    guaranteed_bytes: int
    limit_bytes: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuMemoryUse:
    """What of a shared GPU's memory claims are guaranteed, and what they use; None where it is not known."""

    uuid: str
    pci_bus_id: str
    allocated_bytes: int | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The memory of shared GPUs at one moment."""

    claims: tuple[ClaimMemoryUse, ...] = ()
    containers: tuple[ContainerMemoryUse, ...] = ()
    gpus: tuple[GpuMemoryUse, ...] = ()


class Metrics:
    """All series of one process, in a registry of their own; safe to use from every thread."""

    def __init__(self) -> None:
        """Make every series, at zero."""
        self.registry = CollectorRegistry()
        self.prepared_claims = self._gauge("prepared_claims", "Claims that are prepared on this node.")
        self.published_slices = self._gauge("published_slices", "ResourceSlices that this node publishes.")
        self.published_devices = self._gauge("published_devices", "Devices in the published ResourceSlices.")
        in_flight = self._gauge(
            "operations_in_flight",
            "Operations that came in and have not ended, those that wait for a lock included.",
            "operation",
        )
        self._in_flight: dict[Operation, Gauge] = {
            name: in_flight.labels(name) for name in get_args(Operation)
        }
        ended = self._counter("operations", "Operations that ended.", "operation", "outcome")
        duration = Histogram(
            "gpu_dra_operation_duration_seconds",
            "How long operations took.",
            ("operation", "outcome"),
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._ended: dict[tuple[Operation, Outcome], tuple[Counter, Histogram]] = {
            (name, outcome): (ended.labels(name, outcome), duration.labels(name, outcome))
            for name in get_args(Operation)
            for outcome in OUTCOMES
        }
        writes = self._counter("slice_writes", "Writes of ResourceSlices that the API server took.", "verb")
        self._slice_writes: dict[SliceVerb, Counter] = {
            verb: writes.labels(verb) for verb in get_args(SliceVerb)
        }
        failures = self._counter("nvml_failures", "NVML calls that gave no answer.", "reason")
        self._nvml_failures: dict[NvmlFailure, Counter] = {
            reason: failures.labels(reason) for reason in get_args(NvmlFailure)
        }
        self._reflector_restarts = self._counter(
            "reflector_restarts", "Lists and watches of the Kubernetes API that began anew."
        )

    def show_partitions(self, uses: Callable[[], Iterable[PartitionUse]]) -> None:
        """Show the partitions that claims use; ``uses`` is asked whenever the numbers are fetched.

        It may raise DriverError: the other series are served all the same.
        """
        self.registry.register(_Uses("partition_info", "MIG partitions that claims use", PartitionUse, uses))

    def show_shares(self, uses: Callable[[], Iterable[ShareUse]]) -> None:
        """Show the shares that claims have; as ``show_partitions``."""
        self.registry.register(_Uses("share_info", "Shares that claims have", ShareUse, uses))

    def show_memory(self, uses: Callable[[], MemoryFigures]) -> None:
        """Show what memory of shared GPUs is held and used; as ``show_partitions``."""
        self.registry.register(_Memory(uses))

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"gpu_dra_{name}", meaning, labels, registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"gpu_dra_{name}", meaning, labels, registry=self.registry)

    @contextmanager
    def operation(self, name: Operation) -> Iterator[None]:
        """Count the block as one operation: enter it before taking any lock."""
        started = time.perf_counter()
        in_flight = self._in_flight[name]
        in_flight.inc()
        error: BaseException | None = None
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            ended, seconds = self._ended[name, outcome_of(error)]
            ended.inc()
            seconds.observe(time.perf_counter() - started)
            in_flight.dec()

    def slice_written(self, verb: SliceVerb) -> None:
        """Count one write of a ResourceSlice that the API server took."""
        self._slice_writes[verb].inc()

    def nvml_failed(self, reason: NvmlFailure) -> None:
        """Count one NVML call that gave no answer, by what is wrong with the GPU."""
        self._nvml_failures[reason].inc()

    def reflector_restarted(self) -> None:
        """Count one list and watch that begins anew."""
        self._reflector_restarts.inc()


class CertificateMetrics:
    """The one series of a process that only serves with a certificate, in a registry of its own."""

    def __init__(self, remaining_seconds: Callable[[], float]) -> None:
        """``remaining_seconds`` is asked whenever the number is fetched."""
        self.registry = CollectorRegistry()
        Gauge(
            "gpu_dra_webhook_certificate_remaining_seconds",
            "How long the webhook's serving certificate is still valid; negative once it has expired.",
            registry=self.registry,
        ).set_function(remaining_seconds)


class _Uses(Collector):
    """Makes the series of what claims use anew at each look, so that none outlives its claim."""

    def __init__(
        self,
        name: str,
        what: str,
        kind: type[PartitionUse | ShareUse],
        uses: Callable[[], Iterable[PartitionUse | ShareUse]],
    ) -> None:
        self._name, self._what, self._kind = name, what, kind
        self._uses = uses

    def describe(self) -> list[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> list[GaugeMetricFamily]:
        family = self._family()
        try:
            for use in self._uses():
                family.add_metric(astuple(use), 1)
        except DriverError as error:
            _log.warning("series left out of the metrics", series=self._name, error=str(error))
            return []
        return [family]

    def _family(self) -> GaugeMetricFamily:
        labels = [field.name for field in fields(self._kind)]
        return GaugeMetricFamily(
            f"gpu_dra_{self._name}", f"{self._what} on this node, each 1.", labels=labels
        )


_MEANINGS = {
    "guaranteed_bytes": "GPU memory that {} is guaranteed.",
    "limit_bytes": "The most GPU memory that {} gets.",
    "allocated_bytes": "Memory of a shared GPU that claims are guaranteed.",
    "used_bytes": "GPU memory that is allocated in containers{}, as the NVIDIA driver tells.",
}


class _Memory(Collector):
    """Makes the series of memory anew at each look: one for each kind of holder and each amount.

    The labels are the words of a holder's dataclass, the series its amounts. An amount that is not known is
    left out.
    """

    _KINDS = (
        (ClaimMemoryUse, "claim", "a claim", " of a claim"),
        (ContainerMemoryUse, "container", "a container", ", by container"),
        (GpuMemoryUse, "gpu", "a GPU", " of claims with limits on a GPU"),
    )

    def __init__(self, uses: Callable[[], MemoryFigures]) -> None:
        self._uses = uses

    def describe(self) -> list[GaugeMetricFamily]:
        return list(self._families(MemoryFigures()))

    def collect(self) -> list[GaugeMetricFamily]:
        try:
            return list(self._families(self._uses()))
        except DriverError as error:
            _log.warning("series left out of the metrics", series="memory", error=str(error))
            return []

    def _families(self, uses: MemoryFigures) -> Iterator[GaugeMetricFamily]:
        of_kinds = (uses.claims, uses.containers, uses.gpus)
        for (kind, prefix, who, where), found in zip(self._KINDS, of_kinds, strict=True):
            names = [field.name for field in fields(kind)]
            labels = [name for name in names if not name.endswith("_bytes")]
            for amount in names[len(labels) :]:
                words = _MEANINGS[amount].format(where if amount == "used_bytes" else who)
                family = GaugeMetricFamily(f"gpu_dra_{prefix}_memory_{amount}", words, labels=labels)
                for one in found:
                    value = getattr(one, amount)
                    if value is not None:
                        family.add_metric([getattr(one, label) for label in labels], value)
                yield family


class _Handler(MetricsHandler):
    timeout = CLIENT_SECONDS


def endpoint(address: str, metrics: Metrics | CertificateMetrics) -> HttpEndpoint:
    """The endpoint of these numbers at ``host:port``, bound; raises ConfigError."""
    handler = type("_Handler", (_Handler,), {"registry": metrics.registry})
    return HttpEndpoint(address, handler, what="metrics", flag="--metrics-addr")


def serve(service: Service, address: str, metrics: Metrics | CertificateMetrics) -> None:
    """Serve these numbers as long as the service lives; an empty address serves none. Raises ConfigError."""
    if address:
        served = endpoint(address, metrics)
        service.spawn("metrics", served.run, served.stop)
