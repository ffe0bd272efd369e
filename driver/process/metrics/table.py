"""All series of the driver, from which the numbers are made and of which docs/metrics.md tells."""

from __future__ import annotations

from driver.process.metrics.of_devices import OF_DEVICES
from driver.process.metrics.of_nvidia import OF_NVIDIA
from driver.process.metrics.of_work import OF_WORK
from driver.process.metrics.series import Table

TABLE = Table((*OF_WORK, *OF_DEVICES, *OF_NVIDIA))
