"""Numbers stand at zero from the start, follow what happens, and can be fetched over HTTP."""

import threading
from collections.abc import Iterator

import pytest

from driver.process.metrics.registry import Metrics, endpoint, serve
from driver.process.metrics.table import Reading
from tests.clusters import Service
from tests.driver.process.served import asked, running
from tests.gpus import ClaimBlocked, ClaimRefused, ConfigError, StorageError


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"gpu_dra_{name}", labels)


def test_every_series_stands_at_zero_from_the_start() -> None:
    samples = [sample for family in Metrics().registry.collect() for sample in family.samples]
    counted = [sample for sample in samples if not sample.name.endswith("_created")]
    assert {sample.value for sample in counted} == {0}
    assert all(sample.name.startswith(("gpu_dra_", "nvidia_dra_")) for sample in samples)
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


PARTITION = {
    "claim_namespace": "team",
    "claim": "train",
    "profile": "1g.10gb",
    "uuid": "MIG-1",
    "parent_uuid": "GPU-1",
    "pci_bus_id": "0000:8a:00.0",
    "gpu_instance_id": "7",
    "compute_instance_id": "0",
}


def partition(device: str) -> Reading:
    return Reading("gpu_dra_partition_info", {**PARTITION, "device": device}, 1)


def shown_devices(metrics: Metrics) -> list[str]:
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    return [sample.labels["device"] for sample in samples if sample.name == "gpu_dra_partition_info"]


def test_what_is_shown_is_asked_for_at_each_look_and_ends_with_what_it_tells_of() -> None:
    metrics, uses = Metrics(), [partition("a"), partition("b")]
    metrics.show(lambda: iter(uses), "gpu_dra_partition_info")
    assert shown_devices(metrics) == ["a", "b"]
    assert value(metrics, "partition_info", **PARTITION, device="a") == 1

    uses.pop()
    assert shown_devices(metrics) == ["a"]
    uses.clear()
    assert shown_devices(metrics) == []


def test_what_cannot_be_told_leaves_the_other_numbers_alone() -> None:
    def broken() -> Iterator[Reading]:
        yield partition("a")
        raise StorageError("the journal cannot be read")

    metrics = Metrics()
    metrics.prepared_claims.set(3)
    metrics.show(broken, "gpu_dra_partition_info")
    assert shown_devices(metrics) == []
    assert value(metrics, "prepared_claims") == 3


def test_a_phase_counts_for_the_operation_of_its_thread_and_for_none_outside_of_one() -> None:
    metrics = Metrics("kubeletplugin")
    metrics.phase("locks", 1.0)
    with metrics.operation("prepare"):
        metrics.phase("locks", 0.0001)
        other = threading.Thread(target=metrics.phase, args=("locks", 1.0))
        other.start()
        other.join()

    labels = {"operation": "prepare", "phase": "locks"}
    assert value(metrics, "phase_duration_seconds_count", **labels) == 1
    assert value(metrics, "phase_duration_seconds_bucket", **labels, le="0.0005") == 1
    assert value(metrics, "phase_duration_seconds_count", operation="unprepare", phase="locks") == 0


def test_the_endpoint_serves_the_numbers() -> None:
    metrics = Metrics()
    metrics.prepared_claims.set(3)
    with running(endpoint("127.0.0.1:0", metrics)) as port:
        status, text = asked(port, "/metrics")
    assert status == 200
    assert "gpu_dra_prepared_claims 3.0" in text


def test_an_address_that_is_none_is_named_with_its_flag() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:99999.*give --metrics-addr"):
        serve(Service(), "127.0.0.1:99999", Metrics())


def test_calls_and_requests_are_counted_by_what_they_were() -> None:
    metrics = Metrics()
    metrics.nvml_called("uuid", 0.01)
    metrics.request_ended("GET", "resourceclaims", "2xx", 0.01)
    assert value(metrics, "nvml_call_duration_seconds_count", call="uuid") == 1
    labels = {"verb": "GET", "resource": "resourceclaims", "outcome": "2xx"}
    assert value(metrics, "api_request_duration_seconds_count", **labels) == 1
    with metrics.operation("prepare"):
        metrics.journal_written(0.001)
        metrics.cdi_written(0.001)
    for name, phase in (("journal", "journal"), ("cdi", "files")):
        assert value(metrics, f"{name}_write_duration_seconds_count") == 1
        assert value(metrics, "phase_duration_seconds_count", operation="prepare", phase=phase) == 1


@pytest.mark.parametrize("labels", [{}, {**PARTITION, "device": "a", "colour": "green"}])
def test_a_value_has_the_labels_of_the_table_and_no_others(labels: dict[str, str]) -> None:
    metrics = Metrics()
    metrics.show(lambda: [Reading("gpu_dra_partition_info", labels, 1)], "gpu_dra_partition_info")
    with pytest.raises(ValueError, match="has the labels"):
        list(metrics.registry.collect())
