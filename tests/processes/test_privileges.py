"""What a controller that was started with all of root's rights has left once it runs."""

from pathlib import Path

from tests import needs
from tests.processes.node import Node
from tests.processes.process import DriverProcess

DAC_OVERRIDE, SYS_ADMIN = 1 << 1, 1 << 21
NEEDED = {"fake": DAC_OVERRIDE, "real": DAC_OVERRIDE | SYS_ADMIN}
"""With a kubeconfig, which is a person's file; in a pod there is none."""

pytestmark = needs.ROOT


def rights(process: DriverProcess) -> set[tuple[int, ...]]:
    """The inheritable, permitted, effective, bounding and ambient set of each thread."""
    found = set()
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        lines = [line.split() for line in status.read_text().splitlines()]
        assert ["NoNewPrivs:", "1"] in lines
        found.add(tuple(int(line[1], 16) for line in lines if line and line[0].startswith("Cap")))
    return found


def test_with_fake_gpus_nothing_is_left_that_they_do_not_need(node: Node) -> None:
    with node.plugin(), node.controller() as controller:
        node.publishes(8, controller)

        left = NEEDED["fake"]
        assert rights(controller) == {(0, left, left, left, 0)}
        assert controller.stop() == 0


def test_with_nvml_what_makes_a_privileged_user_is_left(node: Node) -> None:
    bare = node.folder / "bare"
    bare.mkdir()
    with node.plugin(), node.controller(nvml="real", driver_root=str(bare)) as controller:
        controller.wait_for("there is no NVIDIA driver on this node, so new containers get no GPU")

        left = NEEDED["real"]
        assert rights(controller) == {(0, left, left, left, 0)}
