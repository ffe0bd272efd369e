"""What NVML promises about its sessions, its versions, and the list of its GPUs."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from functools import partial

from driver.nvml.api import Code, GpuLost, NotFound, Nvml, NvmlCallFailed, NvmlDevice, SessionLost
from driver.nvml.pci_address import PciAddress
from tools.hardware.contract.clause import (
    BrokenPromise,
    NothingToCheck,
    ask_gpus,
    check_each_gpu,
    clause,
    expect,
    expect_failure,
)

# No machine has so many buses and devices.
_NO_SUCH_GPU = PciAddress(0xFFFF, 0xFE, 0x1F, 0)


def first_gpu(nvml: Nvml) -> NvmlDevice:
    """Open a session and return the first GPU that answers; raises NothingToCheck if none does."""
    nvml.init()
    for index in range(nvml.device_count()):
        try:
            device = nvml.device_by_index(index)
            device.uuid()
        except NvmlCallFailed as error:
            if isinstance(error, GpuLost) or error.code == Code.NO_PERMISSION:
                continue
            raise
        return device
    raise NothingToCheck("NVML lists no GPU that answers")


@clause(
    "calls before init",
    "Before init, calls about the driver and GPUs fail with UNINITIALIZED.",
)
def _refuses_calls_before_init(nvml: Nvml) -> None:
    # The version of CUDA is left out: NVML asks libcuda for it, which needs no session (nvml.h).
    for name, call in (
        ("driver_version", nvml.driver_version),
        ("device_count", nvml.device_count),
        ("shutdown", nvml.shutdown),
    ):
        expect_failure(f"{name} before init", call, Code.UNINITIALIZED)
    expect_failure("device_by_index before init", partial(nvml.device_by_index, 0), SessionLost)


@clause(
    "handles of an ended session",
    "A handle is invalid once its session has ended, and the next session has the same GPU.",
)
def _ends_handles_with_the_session(nvml: Nvml) -> None:
    device = first_gpu(nvml)
    uuid, pci = device.uuid(), device.pci()
    nvml.shutdown()
    expect_failure("uuid with a handle of an ended session", device.uuid, SessionLost)
    expect_failure("device_count after the session", nvml.device_count, SessionLost)
    nvml.init()
    again = nvml.device_by_pci(pci).uuid()
    expect(again == uuid, f"{pci}: the UUID was {uuid}, and is {again} in the next session")


@clause("versions", "The NVIDIA driver and CUDA have versions made of numbers.")
def _reports_its_versions(nvml: Nvml) -> None:
    nvml.init()
    for what, version, form in (
        ("driver", nvml.driver_version(), r"\d+\.\d+(\.\d+)?"),
        ("CUDA", nvml.cuda_driver_version(), r"\d+\.\d+"),
    ):
        expect(re.fullmatch(form, version) is not None, f"the version of {what} is {version!r}")


@clause("identity", "Each GPU has a UUID, a minor number and a PCI address that no other GPU has.")
def _identifies_each_gpu(nvml: Nvml) -> None:
    asked = ask_gpus(nvml, lambda device: (device.uuid(), device.minor(), device.pci()))
    if not asked.answers:
        raise NothingToCheck("; ".join(asked.passed_over) or "NVML lists no GPU")
    for name, (uuid, _, _) in asked.answers.items():
        expect(uuid.startswith("GPU-"), f"{name}: the UUID is {uuid!r}")
    uuids, minors, addresses = zip(*asked.answers.values(), strict=True)
    for what, values in (("UUID", uuids), ("minor number", minors), ("PCI address", addresses)):
        (value, count), *_ = Counter(values).most_common(1)
        expect(count == 1, f"{count} GPUs have the same {what}: {value}")


@clause("index", "A GPU that was found by an index has this index.")
def _gives_the_gpu_of_the_index(nvml: Nvml) -> None:
    nvml.init()
    found: dict[int, int] = {}
    for index in range(nvml.device_count()):
        # A GPU that does not answer is the matter of other clauses.
        with suppress(NvmlCallFailed):
            found[index] = nvml.device_by_index(index).index()
    if not found:
        raise NothingToCheck("NVML lists no GPU that answers")
    wrong = [
        f"the GPU at index {one} says that its index is {other}"
        for one, other in found.items()
        if one != other
    ]
    if wrong:
        raise BrokenPromise(*wrong)


@clause("address", "A GPU that is found by its PCI address is the one that has this address.")
def _finds_each_gpu_by_its_address(nvml: Nvml) -> None:
    def ask(device: NvmlDevice) -> None:
        uuid, found = device.uuid(), nvml.device_by_pci(device.pci()).uuid()
        expect(found == uuid, f"its UUID is {uuid}, and {found} if it is found by its address")

    check_each_gpu(nvml, ask)


@clause("missing GPUs", "An index or an address without a GPU is refused, as INVALID_ARGUMENT or NOT_FOUND.")
def _refuses_gpus_that_are_not_there(nvml: Nvml) -> None:
    nvml.init()
    count = nvml.device_count()
    past_the_last = partial(nvml.device_by_index, count)
    expect_failure(f"device_by_index({count}) of {count} GPUs", past_the_last, Code.INVALID_ARGUMENT)
    nowhere = partial(nvml.device_by_pci, _NO_SUCH_GPU)
    expect_failure(f"device_by_pci({_NO_SUCH_GPU})", nowhere, NotFound)


SESSION_CLAUSES = (
    _refuses_calls_before_init,
    _ends_handles_with_the_session,
    _reports_its_versions,
    _identifies_each_gpu,
    _gives_the_gpu_of_the_index,
    _finds_each_gpu_by_its_address,
    _refuses_gpus_that_are_not_there,
)
"""The clauses about sessions and the list of GPUs."""
