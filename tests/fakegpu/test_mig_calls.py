"""MIG on a fake machine: modes and resets, who holds an instance, what survives what, and faults."""

import pytest

from driver.nvml.api import MigMode
from tests.controller.mig_node import cut
from tests.driver.mig_machines import device
from tests.gpus import FakeMachine


@pytest.mark.parametrize("ending", ["reset", "reboot", "driver"])
@pytest.mark.parametrize("machine", ["a30-quad", "hgx-b200"])
def test_no_instance_outlives_a_reset_a_reboot_or_the_driver(machine: str, ending: str) -> None:
    """Only Ampere keeps the mode over a new load of the driver."""
    fake = FakeMachine.open(machine)
    device(fake).set_mig_mode(True)
    fake.reset(0)
    cut(fake, 0, slices=1, start=0)
    match ending:
        case "reset":
            fake.reset(0)
        case "reboot":
            fake.reboot()
        case "driver":
            fake.driver_gone()
            fake.driver_back()
    stays = ending == "reset" or machine == "a30-quad"
    assert device(fake).mig_mode() == MigMode(enabled=stays, pending=stays)
    assert device(fake).mig_devices() == ()
