"""What every NVML must do about health, events and use; reading only, so also on a real GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from driver.nvml.api import NotFound, NotSupported, SessionLost

if TYPE_CHECKING:
    from driver.nvml.api import Nvml, NvmlDevice


def _devices(nvml: Nvml) -> list[NvmlDevice]:
    nvml.init()
    return [nvml.device_by_index(index) for index in range(nvml.device_count())]


def _mig(device: NvmlDevice) -> bool:
    try:
        return device.mig_mode().enabled
    except NotSupported:
        return False


def _answers(device: NvmlDevice, *names: str) -> dict[str, object]:
    """What the GPU says, without what it does not tell."""
    answers: dict[str, object] = {}
    for name in names:
        try:
            answers[name] = getattr(device, name)()
        except NotSupported as error:
            assert not error.retryable
    return answers


def answers_each_question_about_health_or_says_not_supported(nvml: Nvml) -> None:
    names = (
        "recovery_action", "remapped_rows", "retired_pages_pending", "unrepairable_memory", "ecc_errors",
        "fabric_health",
    )  # fmt: skip
    for device in _devices(nvml):
        answers = _answers(device, *names)
        assert all(value is not None for value in answers.values())
        assert not {"remapped_rows", "retired_pages_pending"} <= set(answers)
        if device.virtualization() == "vgpu":
            assert not answers


def answers_each_question_about_use_or_says_not_supported(nvml: Nvml) -> None:
    names = (
        "memory_use", "utilisation", "power_milliwatts", "power_limit_milliwatts", "temperature_celsius",
        "processes", "busy_processes",
    )  # fmt: skip
    for device in _devices(nvml):
        answers = _answers(device, *names)
        assert "processes" in answers
        assert ("utilisation" in answers) != _mig(device)
        assert ("busy_processes" in answers) != _mig(device)
        assert ("power_milliwatts" in answers) == ("power_limit_milliwatts" in answers)


def uses_no_more_memory_than_there_is(nvml: Nvml) -> None:
    for device in _devices(nvml):
        try:
            use = device.memory_use()
        except NotSupported:
            continue
        assert use.total_bytes == device.memory_bytes()
        assert use.reserved_bytes > 0
        assert 0 <= use.used_bytes + use.reserved_bytes <= use.total_bytes


def tells_the_use_of_each_partition_and_of_no_other(nvml: Nvml) -> None:
    for device in _devices(nvml):
        for mig in device.mig_devices():
            use = device.partition_memory_use(mig.gpu_instance_id, mig.compute_instance_id)
            assert 0 <= use.used_bytes <= use.total_bytes
            assert use.reserved_bytes == 0
            assert use.total_bytes <= device.memory_bytes()
        with pytest.raises(NotFound):
            device.partition_memory_use(14, 7)


def lists_the_same_processes_in_each_way(nvml: Nvml) -> None:
    for device in _devices(nvml):
        found = device.processes()
        assert tuple(sorted({one.pid for one in found})) == device.process_ids()
        assert [one.pid for one in found] == sorted(one.pid for one in found)


def watches_the_gpus_that_it_is_told_to(nvml: Nvml) -> None:
    devices = _devices(nvml)
    events = nvml.watch_events(devices[:1])
    assert events.watched() == {devices[0].uuid()}
    assert events.wait(0) is None
    events.close()
    with pytest.raises(SessionLost):
        events.wait(10)
    events.close()


def waits_for_nothing_where_no_gpu_is_watched(nvml: Nvml) -> None:
    nvml.init()
    events = nvml.watch_events([])
    assert events.watched() == frozenset()
    assert events.wait(0) is None
    events.close()


def ends_event_sets_with_the_session(nvml: Nvml) -> None:
    events = nvml.watch_events(_devices(nvml))
    nvml.shutdown()
    with pytest.raises(SessionLost):
        events.wait(10)


def begins_anew_after_an_event_set(nvml: Nvml) -> None:
    for _ in range(2):
        events = nvml.watch_events(_devices(nvml))
        assert events.watched()
        nvml.shutdown()


HEALTH_CLAUSES: tuple[Callable[[Nvml], None], ...] = (
    answers_each_question_about_health_or_says_not_supported,
    answers_each_question_about_use_or_says_not_supported,
    uses_no_more_memory_than_there_is,
    tells_the_use_of_each_partition_and_of_no_other,
    lists_the_same_processes_in_each_way,
    watches_the_gpus_that_it_is_told_to,
    waits_for_nothing_where_no_gpu_is_watched,
    ends_event_sets_with_the_session,
    begins_anew_after_an_event_set,
)
