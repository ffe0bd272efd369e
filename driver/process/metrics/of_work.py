"""The series about what the processes themselves do: operations, their phases, calls, writes."""

from __future__ import annotations

from driver.process.metrics.series import Process, Series

OPERATION_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06),
    *(0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0),
)
"""From a phase of a repeated prepare to the kubelet's deadline of 45 s."""

CALL_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.03, 0.125, 0.5, 2.0, 5.0, 30.0)
"""From a call that is answered from memory to the deadline of the longest NVML calls, 30 s."""

PLUGIN: tuple[Process, ...] = ("kubeletplugin",)
CONTROLLER: tuple[Process, ...] = ("controller",)
BOTH: tuple[Process, ...] = ("kubeletplugin", "controller")

OF_WORK = (
    Series("gpu_dra_prepared_claims", "gauge", "Claims that are prepared on this node.", PLUGIN),
    Series(
        "gpu_dra_operations_in_flight",
        "gauge",
        "Operations that came in and have not ended, those that wait for a lock included.",
        BOTH,
        ("operation",),
        "2 in the plugin (prepare, unprepare), 1 in the controller (publish)",
    ),
    Series(
        "gpu_dra_operations_total",
        "counter",
        "Operations that ended; outcome is ok, retryable, permanent or internal.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
    ),
    Series(
        "gpu_dra_operation_duration_seconds",
        "histogram",
        "How long operations took.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
        OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_phase_duration_seconds",
        "histogram",
        "How long the phases of prepare and unprepare took.",
        PLUGIN,
        ("operation", "phase"),
        "2 operations x 7 phases",
        OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_journal_write_duration_seconds",
        "histogram",
        "How long it took to write an entry of the journal.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_cdi_write_duration_seconds",
        "histogram",
        "How long it took to write a claim's CDI spec and what it mounts.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_call_duration_seconds",
        "histogram",
        "How long calls of NVML took, failed ones included; one that hangs counts once it is back.",
        BOTH,
        ("call",),
        "the calls of NVML that the process has made, 80 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_failures_total",
        "counter",
        "Answers that NVML did not give in a look at the GPUs, by what is wrong.",
        CONTROLLER,
        ("reason",),
        "6 reasons",
    ),
    Series(
        "gpu_dra_api_request_duration_seconds",
        "histogram",
        "How long requests to the API server took, a watch until it began; outcome is 2xx, 4xx, 5xx, other "
        "or unreachable.",
        BOTH,
        ("verb", "resource", "outcome"),
        "the requests that the process makes, 60 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_reflector_restarts_total",
        "counter",
        "Lists and watches of the Kubernetes API that began anew.",
        CONTROLLER,
    ),
    Series(
        "gpu_dra_plugin_registered",
        "gauge",
        "Whether the kubelet has the plugin registered: 1, or 0.",
        PLUGIN,
        unit_word="0 or 1",
    ),
    Series("gpu_dra_published_slices", "gauge", "ResourceSlices that this node publishes.", CONTROLLER),
    Series("gpu_dra_published_devices", "gauge", "Devices in the published ResourceSlices.", CONTROLLER),
    Series(
        "gpu_dra_slice_writes_total",
        "counter",
        "Writes of ResourceSlices that the API server took.",
        CONTROLLER,
        ("verb",),
        "3: create, update, delete",
    ),
    Series(
        "gpu_dra_publish_age_seconds",
        "gauge",
        "For how long something has waited to be published; 0 when everything is.",
        CONTROLLER,
    ),
    Series(
        "gpu_dra_webhook_certificate_remaining_seconds",
        "gauge",
        "How long the webhook's serving certificate is still valid; negative once it has expired.",
        ("webhook",),
    ),
)
