"""What every NVML must do, whoever implements it: each function is one clause, called with a fresh one."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from driver.nvml.api import Code, NotFound, NotSupported, NvmlCallFailed, SessionLost
from driver.nvml.pci_address import PciAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.api import Nvml, NvmlDevice

MOST_FEATURES = 3
"""NVML_GRID_LICENSE_FEATURE_MAX_COUNT."""


def _devices(nvml: Nvml) -> list[NvmlDevice]:
    nvml.init()
    return [nvml.device_by_index(index) for index in range(nvml.device_count())]


def refuses_all_calls_before_init(nvml: Nvml) -> None:
    for call in (nvml.driver_version, nvml.cuda_driver_version, nvml.device_count, nvml.shutdown):
        with pytest.raises(SessionLost) as caught:
            call()
        assert caught.value.code == Code.UNINITIALIZED
    with pytest.raises(SessionLost):
        nvml.device_by_index(0)


def tells_its_versions(nvml: Nvml) -> None:
    nvml.init()
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", nvml.driver_version())
    assert re.fullmatch(r"\d+\.\d+", nvml.cuda_driver_version())


def gives_each_gpu_one_identity(nvml: Nvml) -> None:
    devices = _devices(nvml)
    assert devices
    assert all(device.uuid().startswith("GPU-") for device in devices)
    for values in (
        {device.uuid() for device in devices},
        {device.minor() for device in devices},
        {device.pci() for device in devices},
    ):
        assert len(values) == len(devices)


def lists_gpus_in_the_order_of_the_bus(nvml: Nvml) -> None:
    devices = _devices(nvml)
    assert [device.index() for device in devices] == list(range(len(devices)))
    addresses = [device.pci() for device in devices]
    assert addresses == sorted(addresses)


def finds_the_same_gpu_by_its_address(nvml: Nvml) -> None:
    for device in _devices(nvml):
        assert nvml.device_by_pci(device.pci()).uuid() == device.uuid()


def refuses_gpus_that_are_not_there(nvml: Nvml) -> None:
    nvml.init()
    with pytest.raises(NvmlCallFailed) as caught:
        nvml.device_by_index(nvml.device_count())
    assert caught.value.code == Code.INVALID_ARGUMENT
    with pytest.raises(NotFound):
        nvml.device_by_pci(PciAddress(0xFFFF, 0xFE, 0x1F, 0))


def answers_every_question_or_says_not_supported(nvml: Nvml) -> None:
    for device in _devices(nvml):
        questions: dict[str, Callable[[], object]] = {
            "name": device.name,
            "brand": device.brand,
            "architecture": device.architecture,
            "compute_capability": device.compute_capability,
            "memory_bytes": device.memory_bytes,
            "memory_use": device.memory_use,
            "addressing_mode": device.addressing_mode,
            "numa_node": device.numa_node,
            "nvlinks": device.nvlinks,
            "mig_mode": device.mig_mode,
            "module_id": device.module_id,
            "fabric": device.fabric,
            "virtualization": device.virtualization,
            "vgpu_types": device.vgpu_types,
            "licensable_features": device.licensable_features,
            "compute_mode": device.compute_mode,
            "persistence_mode": device.persistence_mode,
            "process_ids": device.process_ids,
        }
        answers: dict[str, object] = {}
        for name, question in questions.items():
            try:
                answers[name] = question()
            except NotSupported as error:
                assert not error.retryable
        assert {"name", "architecture", "compute_capability"} <= set(answers)
        assert all(value is not None for value in answers.values())


def tells_on_a_host_alone_which_vgpus_it_can_make(nvml: Nvml) -> None:
    for device in _devices(nvml):
        if device.virtualization() != "host-vgpu":
            with pytest.raises(NotSupported):
                device.vgpu_types()
            continue
        types = device.vgpu_types()
        assert types
        assert [one.id for one in types] == sorted({one.id for one in types})
        assert len({one.name for one in types}) == len(types)
        assert all(one.most > 0 and one.memory_bytes > 0 for one in types)


def tells_of_licenses_what_can_be(nvml: Nvml) -> None:
    for device in _devices(nvml):
        try:
            features = device.licensable_features()
        except NotSupported:
            continue
        assert len(features) <= MOST_FEATURES
        assert all(feature.product for feature in features)
        assert all(feature.licensed for feature in features if feature.expires is not None)
        assert all(feature.expires.tzinfo is UTC for feature in features if feature.expires is not None)


def tells_each_link_from_both_ends(nvml: Nvml) -> None:
    counts: Counter[tuple[PciAddress, PciAddress]] = Counter()
    for device in _devices(nvml):
        try:
            ends = device.nvlinks()
        except NotSupported:
            continue
        assert ends
        for end in ends:
            assert (end.kind == "gpu") == (end.remote is not None)
            if end.remote is not None:
                counts[device.pci(), end.remote] += 1
    assert all(counts[there, here] == count for (here, there), count in counts.items())


def voids_handles_with_the_session(nvml: Nvml) -> None:
    device = _devices(nvml)[0]
    uuid = device.uuid()
    nvml.shutdown()
    with pytest.raises(SessionLost):
        device.uuid()
    with pytest.raises(SessionLost):
        nvml.device_count()
    nvml.init()
    assert nvml.device_by_index(0).uuid() == uuid


CLAUSES: tuple[Callable[[Nvml], None], ...] = (
    refuses_all_calls_before_init,
    tells_its_versions,
    gives_each_gpu_one_identity,
    lists_gpus_in_the_order_of_the_bus,
    finds_the_same_gpu_by_its_address,
    refuses_gpus_that_are_not_there,
    answers_every_question_or_says_not_supported,
    tells_on_a_host_alone_which_vgpus_it_can_make,
    tells_of_licenses_what_can_be,
    tells_each_link_from_both_ends,
    voids_handles_with_the_session,
)
