"""The part of libnvidia-ml about health and use as pynvml sees it, on top of a fake machine."""

# ruff: noqa: SLF001 - byref() keeps what it points to in _obj, and says so in its documentation

import ctypes
from collections import deque
from typing import Any

from driver.nvml.api import failure
from driver.nvml.health.calls import EventSet, RecoveryAction
from driver.nvml.use.calls import MemoryUse
from tests.gpus import Code, GpuEvent, MigDevice, NotSupported, NvmlDevice

INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, TIMEOUT, FUNCTION_NOT_FOUND = 2, 3, 7, 10, 13
VERSION_MISMATCH = 25
RECOVERY_ACTION_FIELD, RESETLESS_MIG_FIELD = 230, 184
UNSIGNED = 1
ACTIONS: tuple[RecoveryAction, ...] = (
    "none",
    "reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex",
    "bus-reset",
    "system-reboot",
)
UNKNOWN_ACTION = 99
KIND_BITS = {"single-bit-ecc": 1, "double-bit-ecc": 2, "xid": 8, "clock": 0x10, "power-source": 0x80}
RECOVERY_ACTION_BIT = 0x8000
SUPPORTED_BITS = 0x809F
SEVERITIES = {"informational": 10, "corrected": 20, "recoverable": 30, "fatal": 40}
SUMMARIES = {"unknown": 0, "healthy": 1, "unhealthy": 2, "limited-capacity": 3}
FAULT_SHIFTS = {"degraded-bandwidth": 0, "route-recovery": 2, "route-unhealthy": 4, "access-timeout": 6}
HEALTHY_MASK = 0x1AA
NO_INSTANCE = 0xFFFFFFFF
FIRST_STRUCTURED = 615


class _Set:
    """An event set: the fake's own, made with the first GPU that is registered, and what waits to be told."""

    def __init__(self) -> None:
        self.devices: list[tuple[int, NvmlDevice]] = []
        self.structured: set[str] = set()
        self.events: EventSet | None = None
        self.waiting: deque[tuple[GpuEvent, bool]] = deque()
        self.last_xid: int | None = None
        self.freed = False


class CLibraryHealth:
    """What the double of the library has about health and use; ``_nvml`` is the fake that answers."""

    _nvml: Any
    _handles: list[Any]
    has_fabric_v3 = True
    has_version_3_of_wait = True
    frees = True
    resetless_field_status = 0
    unknown_fields: frozenset[int] = frozenset()
    sets: list[_Set]
    samples: list[Any]

    def _device(self, handle: Any) -> NvmlDevice:
        raise NotImplementedError

    def _object(self, handle: Any) -> Any:
        raise NotImplementedError

    def device_get_field_values(self, handle: Any, count: Any, fields: Any) -> None:
        device = self._device(handle)
        for position in range(count.value):
            self._field(device, fields._obj[position])

    def _field(self, device: NvmlDevice, field: Any) -> None:
        if field.fieldId in self.unknown_fields:
            field.nvmlReturn = INVALID_ARGUMENT
        elif field.fieldId == RESETLESS_MIG_FIELD:
            field.nvmlReturn, field.valueType = self.resetless_field_status, UNSIGNED
            field.value.uiVal = int(device.mig_without_reset())
        elif field.fieldId == RECOVERY_ACTION_FIELD:
            try:
                action = device.recovery_action()
            except NotSupported:
                field.nvmlReturn = NOT_SUPPORTED
                return
            field.nvmlReturn, field.valueType = 0, UNSIGNED
            field.value.uiVal = UNKNOWN_ACTION if action is None else ACTIONS.index(action)

    def device_get_remapped_rows(
        self, handle: Any, corrected: Any, uncorrected: Any, pending: Any, failed: Any
    ) -> None:
        rows = self._device(handle).remapped_rows()
        corrected._obj.value, uncorrected._obj.value = rows.corrected, rows.uncorrected
        pending._obj.value, failed._obj.value = int(rows.pending), int(rows.failed)

    def device_get_unrepairable_memory_flag_v1(self, handle: Any, out: Any) -> None:
        # nvml.h: nothing but the flag.
        flag = ctypes.c_uint.from_buffer(out._obj)
        flag.value = int(self._device(handle).unrepairable_memory())

    def device_get_total_ecc_errors(self, handle: Any, kind: Any, counter: Any, out: Any) -> None:
        assert counter.value == 0
        errors = self._device(handle).ecc_errors()
        out._obj.value = (errors.corrected, errors.uncorrected)[kind.value]

    def fill_fabric_health(self, handle: Any, out: Any) -> int | None:
        """The newer fields of nvmlGpuFabricInfoV_t; a version that the driver lacks is refused."""
        version = out.version >> 24
        if version == 3 and not self.has_fabric_v3:
            return VERSION_MISMATCH
        try:
            health = self._device(handle).fabric_health()
        except NotSupported:
            return None
        mask = HEALTHY_MASK
        for fault in health.faults:
            if fault == "wrong-configuration":
                mask = mask & ~0xF00 | 4 << 8
            else:
                shift = FAULT_SHIFTS[fault]
                mask = mask & ~(0x3 << shift) | 1 << shift
        out.healthMask = mask
        if version == 3:
            out.healthSummary = SUMMARIES[health.summary]
        return None

    def event_set_create(self, out: Any) -> None:
        self._nvml.driver_version()  # a session is needed
        self.sets.append(_Set())
        ctypes.c_void_p.from_buffer(out._obj).value = len(self.sets)

    def device_get_supported_event_types(self, handle: Any, out: Any) -> None:
        self._device(handle).uuid()
        out._obj.value = SUPPORTED_BITS

    def device_register_events(self, handle: Any, types: Any, events: Any) -> None:
        assert types.value == SUPPORTED_BITS & 0xFF9B
        device = self._device(handle)
        device.register_events()  # type: ignore[attr-defined]  # the fake's own, where faults may wait
        number = _number(handle)
        self._set(events).devices.append((number, device))
        self._begin(self._set(events))

    def event_set_register_gpu_operational_events_v1(self, events: Any, config: Any) -> int | None:
        if int(self._nvml.driver_version().partition(".")[0]) < FIRST_STRUCTURED:
            return FUNCTION_NOT_FOUND
        uuid = config._obj.uuid
        self._set(events).structured.add(uuid if isinstance(uuid, str) else uuid.decode())
        return None

    def event_set_wait_v2(self, events: Any, out: Any, milliseconds: Any) -> int | None:
        told = self._told(self._set(events), milliseconds.value)
        if told is None:
            return TIMEOUT
        event, _ = told
        _fill_bits(out._obj, event)
        numbers = {device.uuid(): number for number, device in self._set(events).devices}
        ctypes.c_void_p.from_buffer(out._obj).value = numbers[event.uuid]
        return None

    def event_set_wait_v3(self, events: Any, out: Any) -> int | None:
        found, data = self._set(events), out._obj
        if not self.has_version_3_of_wait:
            return FUNCTION_NOT_FOUND
        told = self._told(found, data.timeoutMs)
        if told is None:
            return TIMEOUT
        event, structured = told
        data.uuid = event.uuid.encode()
        data.dataType = int(structured)
        found.last_xid = event.xid if structured else None
        if not structured:
            _fill_bits(data, event)
            return None
        data.gpuInstanceId = data.computeInstanceId = NO_INSTANCE
        data.severity = SEVERITIES[event.severity] if event.severity else 0
        data.attributes = (
            int(event.contained is False) | int(event.component_reset) << 3 | int(event.dropped) << 6
        )
        data.groupAttributes = int(event.recovered)
        data.groupCursor, data.groupSize = int(event.incident or 0), 1
        return None

    def event_set_get_context_count_v1(self, events: Any, out: Any) -> None:
        # The first record is one that only its module can read.
        out._obj.count = 2 if self._set(events).last_xid is not None else 0

    def event_set_get_context_info_v1(self, events: Any, out: Any) -> None:
        assert out._obj.index < 2, self._set(events)
        out._obj.nvmlGpuOperationalEventContextType = out._obj.index

    def event_set_get_gpu_operational_event_context_legacy_xid_v1(self, events: Any, out: Any) -> None:
        assert out._obj.index == 1
        out._obj.xidCode = self._set(events).last_xid

    def event_set_free(self, events: Any) -> None:
        found = self._set(events)
        assert not found.freed
        if not self.frees:
            raise failure("nvmlEventSetFree", Code.GPU_IS_LOST)
        found.freed = True
        if found.events is not None:
            found.events.close()

    def _set(self, events: Any) -> _Set:
        return self.sets[_number(events) - 1]

    def _begin(self, events: _Set) -> None:
        if events.events is not None:
            events.events.close()
        events.events = self._nvml.watch_events([device for _, device in events.devices])

    def _told(self, events: _Set, milliseconds: int) -> tuple[GpuEvent, bool] | None:
        """The next event and whether it is structured: a GPU that tells both forms tells the bits first."""
        assert not events.freed
        assert events.events is not None
        if not events.waiting:
            event = events.events.wait(milliseconds / 1000)
            if event is None:
                return None
            both = event.uuid in events.structured and (event.severity or event.kind == "operational")
            if not both or event.xid is not None:
                events.waiting.append((event, False))
            if both:
                events.waiting.append((event, True))
        return events.waiting.popleft() if events.waiting else None

    def device_get_memory_info_v2(self, handle: Any, out: Any) -> None:
        assert out._obj.version == 0x02000028
        thing = self._object(handle)
        told: MemoryUse
        if isinstance(thing, MigDevice):
            told = self._parent(thing).partition_memory_use(thing.gpu_instance_id, thing.compute_instance_id)
        else:
            told = thing.memory_use()
        out._obj.total, out._obj.used, out._obj.reserved = (
            told.total_bytes,
            told.used_bytes,
            told.reserved_bytes,
        )
        out._obj.free = told.total_bytes - told.used_bytes - told.reserved_bytes

    def _parent(self, mig: MigDevice) -> NvmlDevice:
        devices: list[NvmlDevice] = [
            self._nvml.device_by_index(index) for index in range(self._nvml.device_count())
        ]
        return next(device for device in devices if device.uuid() == mig.parent_uuid)

    def device_get_utilization_rates(self, handle: Any, out: Any) -> None:
        told = self._device(handle).utilisation()
        out._obj.gpu, out._obj.memory = round(told.compute * 100), round(told.memory * 100)

    def device_get_temperature(self, handle: Any, sensor: Any, out: Any) -> None:
        assert sensor.value == 0
        out._obj.value = self._device(handle).temperature_celsius()

    def device_get_process_utilization(self, handle: Any, array: Any, count: Any, since: Any) -> int | None:
        assert since.value == 0
        busy = self._device(handle).busy_processes()
        # An older sample of each, a second and more before, is in NVML's buffer as well.
        told = [(5_000_000, one.pid, 100) for one in busy]
        told += [(9_000_000, one.pid, round(one.compute * 100)) for one in busy]
        count._obj.value = len(told)
        if array is None:
            return INSUFFICIENT_SIZE if told else 0
        for position, (when, pid, percent) in enumerate(told):
            array[position].timeStamp, array[position].pid, array[position].smUtil = when, pid, percent
        return None

    def gpm_query_device_support(self, handle: Any, out: Any) -> None:
        device = self._device(handle)
        out._obj.isSupportedDevice = int(
            device.architecture() in ("Hopper", "Blackwell") and device.virtualization() != "vgpu"
        )

    def gpm_sample_alloc(self, out: Any) -> None:
        self.samples.append(None)
        ctypes.c_void_p.from_buffer(out._obj).value = len(self.samples)

    def gpm_mig_sample_get(self, handle: Any, gpu_instance: int, sample: Any) -> None:
        try:
            busy: float | None = self._device(handle).partition_utilisation(gpu_instance)
        except NotSupported:
            busy = None  # the fake compares by itself, and has nothing to compare with so far
        self.samples[_number(sample) - 1] = (gpu_instance, busy)

    def gpm_sample_free(self, sample: Any) -> None:
        number = _number(sample)
        assert self.samples[number - 1] != "freed"
        if not self.frees:
            raise failure("nvmlGpmSampleFree", Code.GPU_IS_LOST)
        self.samples[number - 1] = "freed"

    def gpm_metrics_get(self, asked: Any) -> None:
        told = asked._obj
        assert (told.version, told.numMetrics, told.metrics[0].metricId) == (1, 1, 1)
        old, new = (self.samples[_number(sample) - 1] for sample in (told.sample1, told.sample2))
        assert old[0] == new[0]
        told.metrics[0].nvmlReturn = 0
        told.metrics[0].value = new[1] * 100


def _number(handle: Any) -> int:
    """The number of what was handed out with a handle."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _fill_bits(data: Any, event: GpuEvent) -> None:
    """The old form of an event; what has no bit of its own is a recovery action that changed."""
    data.eventType = KIND_BITS.get(event.kind, RECOVERY_ACTION_BIT)
    data.eventData = event.xid or 0
    data.gpuInstanceId = NO_INSTANCE if event.gpu_instance is None else event.gpu_instance
    data.computeInstanceId = NO_INSTANCE if event.compute_instance is None else event.compute_instance
