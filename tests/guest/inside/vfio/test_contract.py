"""The real kernel answers as the contract says that the pretend one keeps, too."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from kubeletplugin.devices.host.kernel import RealKernel
from tests.fakegpu.sysfs.kernel_contract import CASES, Scene
from tests.guest.inside.vfio.devices import BEHIND, BRIDGE, HOST, NVME, OWN_DRIVERS, SYSFS, opened_by_vfio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_kernel_keeps_the_contract(case: Callable[[Scene], None]) -> None:
    with ExitStack() as machines:

        def opened() -> Callable[[], None]:
            machines.enter_context(opened_by_vfio(BEHIND))
            return machines.close

        case(Scene(RealKernel(HOST, SYSFS), SYSFS, BEHIND, OWN_DRIVERS[BEHIND], BRIDGE, NVME, opened, 3.0))
