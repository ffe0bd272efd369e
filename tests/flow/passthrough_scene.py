"""A node that offers each of its eight GPUs whole and for passthrough."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.clusters import PACKAGE_ROOT, DriverNode
from tests.flow.mig_scene import configured, kind, wait_offered

RULES = "version: v1\nrules: [{passthrough: true}]\n"


@contextmanager
def beside_whole(driver: DriverNode) -> Iterator[None]:
    """Have the GPUs offered so within the block, and the class for virtual machines in the cluster."""
    driver.cluster.api.apply(PACKAGE_ROOT / "deviceclasses/vfio.yaml")
    with configured(driver, RULES):
        wait_offered(driver, lambda devices: sorted(map(kind, devices)) == ["gpu"] * 8 + ["vfio"] * 8)
        yield
