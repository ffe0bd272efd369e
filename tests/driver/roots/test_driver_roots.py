"""All that read the driver get one root, which follows the driver that comes, goes and is replaced."""

import threading
from pathlib import Path

import pytest

from driver.roots.driver_roots import NoDriverRoot
from driver.roots.flag import roots_from_flags
from driver.roots.watch import watch_roots
from fakegpu.driver_files.host_layouts import remove_driver
from tests.clusters import Service
from tests.gpus import HOST_LAYOUTS, ConfigError, DriverNotLoaded, DriverRoots, RealNvml, lay_driver
from tests.plugin import InstalledDriver

CONTAINER = HOST_LAYOUTS["driver container, Ubuntu"]
GKE = HOST_LAYOUTS["GKE"]
OLD, NEW = "570.133.20", "580.95.05"


def version(driver: InstalledDriver) -> str:
    """The version of the driver whose files containers get now."""
    return driver.now().files().version


def test_a_driver_that_comes_late_is_found_and_one_that_goes_is_not(
    roots: DriverRoots, tmp_path: Path
) -> None:
    driver = InstalledDriver(roots)
    with pytest.raises(NoDriverRoot, match="/run/nvidia/driver: the folder does not exist"):
        driver.now()

    lay_driver(tmp_path, CONTAINER, OLD)
    assert version(driver) == OLD

    remove_driver(tmp_path, CONTAINER)
    with pytest.raises(NoDriverRoot, match="/run/nvidia/driver: the folder is empty"):
        driver.now()

    lay_driver(tmp_path, CONTAINER, NEW)
    assert version(driver) == NEW


def test_a_root_that_stays_is_looked_at_once(roots: DriverRoots, tmp_path: Path) -> None:
    lay_driver(tmp_path, GKE, NEW)
    driver = InstalledDriver(roots)
    first = driver.now()
    lay_driver(tmp_path, CONTAINER, NEW)

    assert driver.now() is first, "a prepare does not look at every place"

    roots.look()
    assert driver.now().root.on_host == Path(CONTAINER.root)


def test_a_version_in_place_of_another_is_noticed_by_the_next_one_who_asks(
    roots: DriverRoots, tmp_path: Path
) -> None:
    lay_driver(tmp_path, GKE, OLD)
    driver = InstalledDriver(roots)
    assert version(driver) == OLD
    before = roots.state()

    lay_driver(tmp_path, GKE, NEW)

    assert version(driver) == NEW
    assert roots.state() != before


def test_without_a_root_nvml_says_what_was_looked_at(roots: DriverRoots) -> None:
    with pytest.raises(DriverNotLoaded, match=r"no NVIDIA driver was found on this node .*/var/lib/nvidia"):
        RealNvml(roots).init()


def test_the_flags_name_a_root_or_have_it_probed(tmp_path: Path) -> None:
    lay_driver(tmp_path, CONTAINER, NEW)
    below = tmp_path / "run/nvidia/driver"

    probed = roots_from_flags("auto", tmp_path, tmp_path / "sys").current()
    named = roots_from_flags(str(below), tmp_path, tmp_path / "sys", Path(CONTAINER.root)).current()
    plain = roots_from_flags(str(below), Path("/"), Path("/sys")).current()

    assert [(one.seen, one.on_host) for one in (probed, named, plain)] == [
        (below, Path(CONTAINER.root)), (below, Path(CONTAINER.root)), (below, below),
    ]  # fmt: skip


def test_flags_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--host-driver-root has no effect while --driver-root is auto"):
        roots_from_flags("auto", tmp_path, tmp_path, Path("/run/nvidia/driver"))
    with pytest.raises(ConfigError, match=r"--host-root .*missing is not a folder"):
        roots_from_flags("auto", tmp_path / "missing", tmp_path)


def test_a_root_that_is_named_counts_although_no_driver_is_there_and_is_not_watched(tmp_path: Path) -> None:
    roots, service = DriverRoots.fixed(tmp_path, Path("/run/nvidia/driver")), Service()
    watch_roots(service, roots, 0.05)
    assert not [thread for thread in threading.enumerate() if thread.name == "driver root"]
    assert roots.current().seen == tmp_path
    assert [(one.path, one.reason) for one in roots.look()] == [("/run/nvidia/driver", "the folder is empty")]
