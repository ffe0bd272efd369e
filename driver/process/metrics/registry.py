"""Counts what a process of the driver does, in the series of the table, and serves the numbers over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from driver.errors import OUTCOMES, DriverError, Outcome, outcome_of
from driver.process.http_endpoint import ANSWER_SECONDS, HttpEndpoint, Server
from driver.process.log import get_logger
from driver.process.metrics.table import NVIDIA_DRIVER, TABLE, Process, Reading, Series
from driver.process.service import Service

_log = get_logger("metrics")

M = TypeVar("M", Gauge, Counter, Histogram)

_Family = GaugeMetricFamily | CounterMetricFamily

Operation = Literal["prepare", "unprepare", "publish"]
Phase = Literal["claim", "locks", "locate", "hardware", "sharing", "spec", "journal", "files"]
_SliceVerb = Literal["create", "update", "delete"]
Eviction = Literal["evicted", "refused", "failed"]
RoomOutcome = Literal["used", "taken", "stuck", "unused", "gone"]
NvmlFailure = Literal["lost", "hung", "reset-required", "failing", "fabric", "error"]

_OPERATIONS: dict[Process | None, tuple[Operation, ...]] = {
    "kubeletplugin": ("prepare", "unprepare"),
    "controller": ("publish",),
}


class _Shown(Collector):
    """Series whose values are read whenever the metrics are fetched.

    A DriverError leaves out all of these series, and no others.
    """

    def __init__(self, series: Sequence[Series], read: Callable[[], Iterable[Reading]]) -> None:
        self._series = tuple(series)
        self._read = read

    def describe(self) -> list[_Family]:
        """The series without values."""
        # register() calls collect() on collectors without this method, long before anybody fetches.
        return [_family(one) for one in self._series]

    def collect(self) -> list[_Family]:
        """The series with their values now; raises ValueError for one with other labels than its own."""
        families = {one.name: (one.labels, _family(one)) for one in self._series}
        try:
            for reading in self._read():
                labels, family = families[reading.series]
                if len(reading.labels) != len(labels):
                    raise ValueError(f"{reading.series} has the labels {labels}, not {tuple(reading.labels)}")
                family.add_metric([reading.labels[name] for name in labels], reading.value)
        except DriverError as error:
            # An exception out of collect() would make the whole page fail.
            names = ", ".join(families)
            _log.warning("cannot read some series of the metrics", series=names, error=str(error))
            return []
        return [family for _, family in families.values()]


def _family(series: Series) -> _Family:
    if series.kind == "counter":
        return CounterMetricFamily(series.name, series.help, labels=series.labels)
    return GaugeMetricFamily(series.name, series.help, labels=series.labels)


@dataclass(frozen=True, slots=True)
class _NvidiaSeries:
    """The series of an operation that NVIDIA's own driver has, too; it counts only successful operations."""

    in_flight: Gauge
    done: Counter
    duration: Histogram

    def end(self, seconds: float | None) -> None:
        """Count an operation that ended; without ``seconds`` it failed."""
        self.in_flight.dec()
        if seconds is not None:
            self.done.inc()
            self.duration.observe(seconds)


class Metrics:
    """All metrics of one process, in a registry of their own. Thread-safe."""

    def __init__(self, process: Process | None = None) -> None:
        """Make every series of the process, at zero. None stands for all processes of a node."""
        # Not the global registry of prometheus_client: it has series about Python, and tests make many of
        # these.
        self.registry = CollectorRegistry()
        self._process = process
        self._now = threading.local()
        self.prepared_claims = self._make(Gauge, "gpu_dra_prepared_claims")
        self.published_slices = self._make(Gauge, "gpu_dra_published_slices")
        self.published_devices = self._make(Gauge, "gpu_dra_published_devices")
        self._in_flight, self._ended = self._operations(_OPERATIONS.get(process, get_args(Operation)))
        phases = self._make(Histogram, "gpu_dra_phase_duration_seconds")
        # All children whose labels are known are made here: a counter has to exist at zero before its first
        # event, or Prometheus' rate() misses that event.
        self._phases: dict[tuple[str, Phase], Histogram] = {
            (name, phase): phases.labels(name, phase)
            for name in ("prepare", "unprepare")
            for phase in get_args(Phase)
        }
        writes = self._make(Counter, "gpu_dra_slice_writes_total")
        self._slice_writes: dict[_SliceVerb, Counter] = {
            verb: writes.labels(verb) for verb in get_args(_SliceVerb)
        }
        failures = self._make(Counter, "gpu_dra_nvml_failures_total")
        self._nvml_failures: dict[NvmlFailure, Counter] = {
            reason: failures.labels(reason) for reason in get_args(NvmlFailure)
        }
        self._reflector_restarts = self._make(Counter, "gpu_dra_reflector_restarts_total")
        self._journal = self._make(Histogram, "gpu_dra_journal_write_duration_seconds")
        self._cdi = self._make(Histogram, "gpu_dra_cdi_write_duration_seconds")
        self._nvml_calls = self._make(Histogram, "gpu_dra_nvml_call_duration_seconds")
        self._nvml_by_call: dict[str, Histogram] = {}
        self._requests = self._make(Histogram, "gpu_dra_api_request_duration_seconds")
        self._xids = self._make(Counter, "gpu_dra_gpu_xids_total")
        evictions = self._make(Counter, "gpu_dra_preemptor_evictions_total")
        self._evictions: dict[Eviction, Counter] = {
            outcome: evictions.labels(outcome) for outcome in get_args(Eviction)
        }
        rooms = self._make(Counter, "gpu_dra_preemptor_rooms_total")
        self._rooms: dict[RoomOutcome, Counter] = {
            outcome: rooms.labels(outcome) for outcome in get_args(RoomOutcome)
        }
        self._nvidia = self._nvidia_series()

    def show(self, read: Callable[[], Iterable[Reading]], *names: str) -> None:
        """Show series whose values ``read()`` returns whenever the metrics are fetched.

        It may raise DriverError. The other series are served all the same.
        """
        self.registry.register(_Shown([TABLE[name] for name in names], read))

    def show_number(self, name: str, read: Callable[[], float]) -> None:
        """Show a series without labels whose value ``read()`` returns whenever the metrics are fetched."""
        self._make(Gauge, name).set_function(read)

    @contextmanager
    def operation(self, name: Operation) -> Iterator[None]:
        """Count the block as one operation: enter it before taking any lock."""
        started = time.perf_counter()
        in_flight, nvidia = self._in_flight[name], self._nvidia.get(name)
        in_flight.inc()
        if nvidia is not None:
            nvidia.in_flight.inc()
        # The phases of this operation are noted by the same thread, deep below, without a reference to it.
        self._now.operation = name
        error: BaseException | None = None
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._now.operation = ""
            seconds = time.perf_counter() - started
            ended, duration = self._ended[name, outcome_of(error)]
            ended.inc()
            duration.observe(seconds)
            in_flight.dec()
            if nvidia is not None:
                nvidia.end(seconds if error is None else None)

    def phase(self, name: Phase, seconds: float) -> None:
        """Note how long a phase of this thread's operation took; outside of an operation, do nothing."""
        phase = self._phases.get((getattr(self._now, "operation", ""), name))
        if phase is not None:
            phase.observe(seconds)

    def journal_written(self, seconds: float) -> None:
        """Note how long it took to write an entry of the journal."""
        self._journal.observe(seconds)
        self.phase("journal", seconds)

    def cdi_written(self, seconds: float) -> None:
        """Note how long it took to write a claim's CDI spec and what it mounts."""
        self._cdi.observe(seconds)
        self.phase("files", seconds)

    def nvml_called(self, call: str, seconds: float) -> None:
        """Note how long a call of NVML took; ``call`` is its name in driver.nvml.api."""
        histogram = self._nvml_by_call.get(call)
        # labels() is slow, and each prepare makes several calls.
        if histogram is None:
            histogram = self._nvml_by_call[call] = self._nvml_calls.labels(call)
        histogram.observe(seconds)

    def request_ended(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """Note how long a request to the API server took."""
        self._requests.labels(verb, resource, outcome).observe(seconds)

    def slice_written(self, verb: _SliceVerb) -> None:
        """Count one write of a ResourceSlice that the API server took."""
        self._slice_writes[verb].inc()

    def nvml_failed(self, reason: NvmlFailure) -> None:
        """Count one NVML call that gave no answer, by what is wrong with the GPU."""
        self._nvml_failures[reason].inc()

    def reflector_restarted(self) -> None:
        """Count one list and watch that begins again."""
        self._reflector_restarts.inc()

    def xid_seen(self, pci: str, code: int) -> None:
        """Count one XID that NVML reported of the GPU at this address, as sysfs writes it."""
        self._xids.labels(pci, str(code)).inc()

    def eviction_ended(self, outcome: Eviction) -> None:
        """Count one eviction that the preemptor asked for."""
        self._evictions[outcome].inc()

    def room_ended(self, outcome: RoomOutcome) -> None:
        """Count one room that the preemptor made, by what became of it."""
        self._rooms[outcome].inc()

    def _operations(
        self, names: tuple[Operation, ...]
    ) -> tuple[dict[Operation, Gauge], dict[tuple[Operation, Outcome], tuple[Counter, Histogram]]]:
        """The series of operations: how many are running, how many ended, and how long they took."""
        in_flight = self._make(Gauge, "gpu_dra_operations_in_flight")
        ended = self._make(Counter, "gpu_dra_operations_total")
        duration = self._make(Histogram, "gpu_dra_operation_duration_seconds")
        return {name: in_flight.labels(name) for name in names}, {
            (name, outcome): (ended.labels(name, outcome), duration.labels(name, outcome))
            for name in names
            for outcome in OUTCOMES
        }

    def _nvidia_series(self) -> dict[str, _NvidiaSeries]:
        """The series that NVIDIA's own driver has, too, by operation."""
        in_flight = self._make(Gauge, "nvidia_dra_requests_inflight")
        done = self._make(Counter, "nvidia_dra_requests_total")
        duration = self._make(Histogram, "nvidia_dra_request_duration_seconds")
        found = {}
        for name in ("prepare", "unprepare"):
            labels = (NVIDIA_DRIVER, name)
            found[name] = _NvidiaSeries(
                in_flight.labels(*labels), done.labels(*labels), duration.labels(*labels)
            )
        return found

    def _make(self, kind: type[M], name: str) -> M:
        """Make a series of the table."""
        series = TABLE[name]
        # A series without a registry counts like any other, so code that both processes share need not ask.
        is_shown = self._process is None or self._process in series.processes
        options: dict[str, Any] = {"buckets": series.buckets} if series.buckets else {}
        registry = self.registry if is_shown else None
        return kind(series.name, series.help, series.labels, registry=registry, **options)


class _Handler(MetricsHandler):
    server: Server
    # As in driver.process.probes: a client that does not read must not keep its thread.
    timeout = ANSWER_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self.server.has_read(self.connection)
        super().do_GET()


def endpoint(address: str, metrics: Metrics | CertificateMetrics) -> HttpEndpoint:
    """The endpoint of these metrics at ``host:port``, bound; raises ConfigError."""
    # MetricsHandler takes its registry from the class.
    handler = type("_Handler", (_Handler,), {"registry": metrics.registry})
    return HttpEndpoint(address, lambda place: Server(place, handler), what="metrics", flag="--metrics-addr")


def serve(service: Service, address: str, metrics: Metrics | CertificateMetrics) -> None:
    """Serve these metrics as long as the service lives; with an empty address, none. Raises ConfigError."""
    if address:
        served = endpoint(address, metrics)
        service.spawn("metrics", served.run, served.stop)


class CertificateMetrics:
    """The metric of a process that only serves with a certificate, in a registry of its own."""

    def __init__(self, remaining_seconds: Callable[[], float]) -> None:
        """``remaining_seconds`` is called whenever the metric is fetched."""
        self.registry = CollectorRegistry()
        (series,) = TABLE.of("webhook")
        Gauge(series.name, series.help, registry=self.registry).set_function(remaining_seconds)
