"""Posts an event of the Node when the license of a vGPU is missing, is there again, or ends soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controller.observe.node_events import NodeEvents
from driver.event_reasons import EventReason
from driver.hardware.gpu import Gpu
from driver.hardware.vgpu import VgpuLicense
from driver.process.log import get_logger

_log = get_logger(__name__)

# A lease is for a day by default, and is renewed long before it ends. Four hours are enough to act.
ENDS_SOON = timedelta(hours=4)

# Of a shorter lease, the last quarter counts.
_LAST_PART = 4


def utc_now() -> datetime:
    """The time of day of this machine."""
    # NVML gives the expiry as a date, so the monotonic clock cannot be compared with it.
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Known:
    """A license that has not changed since it was first seen."""

    license: VgpuLicense
    since: datetime
    warned: bool = False

    def ends_soon(self, now: datetime) -> bool:
        """Whether little is left of the time that it had when it was first seen."""
        ends = self.license.expires
        return ends is not None and ends - now < min(ENDS_SOON, (ends - self.since) / _LAST_PART)


class Licenses:
    """Posts each event once; a license that ends soon gets another event only after it was renewed."""

    def __init__(self, events: NodeEvents, now: Callable[[], datetime] = utc_now) -> None:
        self._events = events
        self._now = now
        self._known: dict[str, _Known] = {}

    def seen(self, gpus: Sequence[Gpu]) -> None:
        """Take in the GPUs of a check; only vGPUs have a license."""
        licenses = {gpu.uuid: (gpu, found) for gpu in gpus if (found := gpu.vgpu_license) is not None}
        self._known = {uuid: self._judge(gpu, found) for uuid, (gpu, found) in licenses.items()}

    def _judge(self, gpu: Gpu, found: VgpuLicense) -> _Known:
        former, now = self._known.get(gpu.uuid), self._now()
        # A renewal changes the expiry, so it counts as another license.
        if former is None or former.license != found:
            self._post_change(gpu, former, found)
            former = _Known(found, now)
        if former.warned or not former.ends_soon(now):
            return former
        _log.warning("license of a vGPU ends soon", gpu=str(gpu.pci), product=found.product)
        self._events.post(
            EventReason.VGPU_LICENSE_ENDS,
            f"the license of vGPU {gpu.pci} ({found.product}) ends at {found.expires:%Y-%m-%dT%H:%M:%SZ} "
            "and was not renewed yet: check whether nvidia-gridd reaches the license server",
        )
        return _Known(found, former.since, warned=True)

    def _post_change(self, gpu: Gpu, former: _Known | None, found: VgpuLicense) -> None:
        had = None if former is None else former.license.licensed
        if not found.licensed and had is not False:
            text = (
                f"vGPU {gpu.pci} has no license ({found.product}), so no new pod gets it: check that "
                "nvidia-gridd runs, and see its log"
            )
            self._events.post(EventReason.VGPU_UNLICENSED, text)
        elif found.licensed and had is False:
            self._events.post(EventReason.VGPU_LICENSED, f"vGPU {gpu.pci} has its license ({found.product})")
