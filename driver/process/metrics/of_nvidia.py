"""The series of NVIDIA's own DRA driver whose meaning is the same here, under that driver's names."""

from __future__ import annotations

from driver.process.metrics.of_work import PLUGIN
from driver.process.metrics.series import Series

NVIDIA_DRIVER = "gpu.nvidia.com"
"""The label ``driver``: both drivers have this name."""

NVIDIA_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""That driver's own buckets."""

OF_NVIDIA = (
    Series(
        "nvidia_dra_requests_total",
        "counter",
        "Claims that were prepared or unprepared with success; operation is prepare or unprepare.",
        PLUGIN,
        ("driver", "operation"),
        "2",
    ),
    Series(
        "nvidia_dra_request_duration_seconds",
        "histogram",
        "How long prepare and unprepare of a claim took that had success.",
        PLUGIN,
        ("driver", "operation"),
        "2",
        NVIDIA_SECONDS,
    ),
    Series(
        "nvidia_dra_requests_inflight",
        "gauge",
        "Claims that are being prepared or unprepared.",
        PLUGIN,
        ("driver", "operation"),
        "2",
    ),
    Series(
        "nvidia_dra_prepared_devices",
        "gauge",
        "Devices that prepared claims have; device_type is the published attribute type.",
        PLUGIN,
        ("node", "driver", "device_type"),
        "types of devices of the node",
    ),
)
