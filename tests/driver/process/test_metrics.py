"""Numbers stand at zero from the start, follow what happens, and can be fetched over HTTP."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from driver.errors import ClaimBlocked, ClaimRefused, ConfigError, StorageError
from driver.process.metrics import (
    ClaimMemoryUse,
    ContainerMemoryUse,
    GpuMemoryUse,
    MemoryFigures,
    Metrics,
    PartitionUse,
    ShareUse,
    endpoint,
    serve,
)
from driver.process.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.process.http_endpoint import HttpEndpoint


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"gpu_dra_{name}", labels)


def test_every_series_stands_at_zero_from_the_start() -> None:
    samples = [sample for family in Metrics().registry.collect() for sample in family.samples]
    counted = [sample for sample in samples if not sample.name.endswith("_created")]
    assert {sample.value for sample in counted} == {0}
    assert all(sample.name.startswith("gpu_dra_") for sample in samples)
    outcomes = {s.labels["outcome"] for s in counted if s.name == "gpu_dra_operations_total"}
    assert outcomes == {"ok", "retryable", "permanent", "internal"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ClaimBlocked("x"), "retryable"), (ClaimRefused("x"), "permanent"), (KeyError("x"), "internal")],
)
def test_a_failed_operation_is_counted_by_its_outcome(error: Exception, outcome: str) -> None:
    metrics = Metrics()
    with pytest.raises(type(error)), metrics.operation("prepare"):
        raise error
    assert value(metrics, "operations_total", operation="prepare", outcome=outcome) == 1
    assert value(metrics, "operations_total", operation="prepare", outcome="ok") == 0
    assert value(metrics, "operations_in_flight", operation="prepare") == 0


def test_an_operation_is_in_flight_until_it_ends_and_then_has_a_duration() -> None:
    metrics = Metrics()
    with metrics.operation("unprepare"):
        assert value(metrics, "operations_in_flight", operation="unprepare") == 1
        assert value(metrics, "operations_in_flight", operation="prepare") == 0
    labels = {"operation": "unprepare", "outcome": "ok"}
    assert value(metrics, "operation_duration_seconds_count", **labels) == 1
    assert value(metrics, "operation_duration_seconds_bucket", le="45.0", **labels) == 1
    assert value(metrics, "operation_duration_seconds_bucket", le="0.001", **labels) is not None


def test_slice_writes_nvml_failures_and_restarts_are_counted() -> None:
    metrics = Metrics()
    metrics.slice_written("update")
    metrics.nvml_failed("hung")
    metrics.reflector_restarted()
    assert value(metrics, "slice_writes_total", verb="update") == 1
    assert value(metrics, "slice_writes_total", verb="create") == 0
    assert value(metrics, "nvml_failures_total", reason="hung") == 1
    assert value(metrics, "reflector_restarts_total") == 1


def partition(device: str) -> PartitionUse:
    return PartitionUse(
        claim_namespace="team",
        claim="train",
        device=device,
        profile="1g.10gb",
        uuid="MIG-1",
        parent_uuid="GPU-1",
        pci_bus_id="0000:8a:00.0",
        gpu_instance_id="7",
        compute_instance_id="0",
    )


def shown_devices(metrics: Metrics) -> list[str]:
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    return [sample.labels["device"] for sample in samples if sample.name == "gpu_dra_partition_info"]


def test_partitions_are_shown_while_they_are_used_and_asked_for_at_each_look() -> None:
    metrics, uses = Metrics(), [partition("a"), partition("b")]
    metrics.show_partitions(lambda: iter(uses))
    assert shown_devices(metrics) == ["a", "b"]
    labels = {
        "claim_namespace": "team",
        "claim": "train",
        "device": "a",
        "profile": "1g.10gb",
        "uuid": "MIG-1",
        "parent_uuid": "GPU-1",
        "pci_bus_id": "0000:8a:00.0",
        "gpu_instance_id": "7",
        "compute_instance_id": "0",
    }
    assert value(metrics, "partition_info", **labels) == 1

    uses.pop()
    assert shown_devices(metrics) == ["a"]
    uses.clear()
    assert shown_devices(metrics) == []


def test_partitions_that_cannot_be_told_leave_the_other_numbers_alone() -> None:
    def broken() -> Iterator[PartitionUse]:
        yield partition("a")
        raise StorageError("the journal cannot be read")

    metrics = Metrics()
    metrics.prepared_claims.set(3)
    metrics.show_partitions(broken)
    assert shown_devices(metrics) == []
    assert value(metrics, "prepared_claims") == 3


def test_shares_are_shown_beside_partitions() -> None:
    share = ShareUse(
        claim_namespace="team",
        claim="serve",
        device="gpu-0000-8a-00-0-mps-4",
        share_id="5f0e",
        strategy="mps",
        uuid="GPU-1",
        pci_bus_id="0000:8a:00.0",
        shares="1",
        memory_bytes="",
        active_thread_percentage="25",
        pinned_memory_mib="20480",
    )
    metrics = Metrics()
    metrics.show_partitions(lambda: [partition("a")])
    metrics.show_shares(lambda: [share])

    assert value(metrics, "share_info", **asdict(share)) == 1
    assert shown_devices(metrics) == ["a"]


GPU = {"uuid": "GPU-1", "pci_bus_id": "0000:8a:00.0"}
SHARE = {"claim_namespace": "team", "claim": "serve", "device": "d", "share_id": "5f0e", **GPU}
POD = {"claim_pod": "serve-0", "claim_container": "main"}


def memory(used_bytes: int | None) -> MemoryFigures:
    of_claim = ClaimMemoryUse("team", "serve", "d", "5f0e", "GPU-1", "0000:8a:00.0", 10, 20, used_bytes)
    container = ContainerMemoryUse(
        *("team", "serve", "serve-0", "main", "d", "5f0e", "GPU-1", "0000:8a:00.0"), 10, 20, used_bytes
    )
    return MemoryFigures((of_claim,), (container,), (GpuMemoryUse("GPU-1", "0000:8a:00.0", 10, used_bytes),))


def test_memory_is_shown_by_claim_container_and_gpu() -> None:
    metrics = Metrics()
    metrics.show_memory(lambda: memory(7))

    for name, number in (("guaranteed", 10), ("limit", 20), ("used", 7)):
        assert value(metrics, f"claim_memory_{name}_bytes", **SHARE) == number
        assert value(metrics, f"container_memory_{name}_bytes", **SHARE, **POD) == number
    assert value(metrics, "gpu_memory_allocated_bytes", **GPU) == 10
    assert value(metrics, "gpu_memory_used_bytes", **GPU) == 7


def test_memory_that_is_not_known_has_no_series() -> None:
    metrics = Metrics()
    metrics.show_memory(lambda: memory(None))

    assert value(metrics, "claim_memory_used_bytes", **SHARE) is None
    assert value(metrics, "container_memory_used_bytes", **SHARE, **POD) is None
    assert value(metrics, "gpu_memory_used_bytes", **GPU) is None
    assert value(metrics, "claim_memory_limit_bytes", **SHARE) == 20


def test_memory_that_cannot_be_told_leaves_the_other_numbers_alone() -> None:
    def broken() -> MemoryFigures:
        raise StorageError("the journal cannot be read")

    metrics = Metrics()
    metrics.prepared_claims.set(3)
    metrics.show_memory(broken)

    assert value(metrics, "claim_memory_limit_bytes", **SHARE) is None
    assert value(metrics, "prepared_claims") == 3


@contextmanager
def running(served: HttpEndpoint) -> Iterator[None]:
    thread = threading.Thread(target=served.run)
    thread.start()
    yield
    served.stop()
    thread.join()


def test_the_endpoint_serves_the_numbers_and_lets_the_address_go() -> None:
    metrics = Metrics()
    metrics.prepared_claims.set(3)
    served = endpoint("127.0.0.1:0", metrics)
    address = f"127.0.0.1:{served.port}"
    with running(served), urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        assert b"gpu_dra_prepared_claims 3.0" in answer.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=10)
    again = endpoint(address, metrics)
    with running(again):
        assert again.port == served.port


def test_without_an_address_nothing_is_served() -> None:
    threads = threading.active_count()

    serve(Service(), "", Metrics())

    assert threading.active_count() == threads


def test_an_address_that_is_none_is_named_with_its_flag() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:99999.*give --metrics-addr"):
        serve(Service(), "127.0.0.1:99999", Metrics())
