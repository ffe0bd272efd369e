"""Reads the node that is verified; a fake machine first gets the files that a real node has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from driver.errors import ConfigError
from fakegpu.nvml.flag import nvml_from_flag
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.verify.subject import Subject

AUTO = "auto"
FAKE = "fake:"


@contextmanager
def node_of(places: Places) -> Iterator[Places]:
    """The places to verify. For a fake machine its driver, sysfs and empty folders are in a temporary one.

    A fake machine whose ``--driver-root`` is given has all of that already. Raises ConfigError for a machine
    that does not exist.
    """
    if not places.nvml.startswith(FAKE) or places.driver_root != AUTO:
        yield places
        return
    with TemporaryDirectory(prefix="gpu-dra-fake-") as made:
        yield _pretended(places, Path(made))


def _pretended(places: Places, folder: Path) -> Places:
    """A node with the machine of ``--nvml`` below a folder."""
    from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
    from fakegpu.machine.fake_machine import FakeMachine

    # Programs such as nvidia-smi are processes of their own, and share the machine through a file.
    nvml = places.nvml if "@" in places.nvml else f"{places.nvml}@{folder / 'state.json'}"
    machine = FakeMachine.open(nvml)
    build_driver_root(folder / "driver", machine)
    build_sysfs(folder, machine)
    for name in ("host", "plugins", "registry", "cdi", "mps"):
        (folder / name).mkdir()
    return replace(
        places,
        nvml=nvml,
        driver_root=str(folder / "driver"),
        host_root=folder / "host",
        plugins_dir=folder / "plugins",
        registry_dir=folder / "registry",
        cdi_dir=folder / "cdi",
        mps_dir=folder / "mps",
        sysfs_root=folder / "sys",
    )


def read_subject(places: Places) -> Subject:
    """Read the node once; raises ConfigError for flags that contradict each other."""
    roots = places.roots()
    return Subject(places, look_at_node(places), lambda: nvml_from_flag(places.nvml, roots))


def missing(seen: NodeSeen) -> ConfigError | None:
    """Why there is nothing to verify: no GPU, or no NVIDIA driver; None if there are both."""
    if isinstance(seen.driver_files, Unread) or (
        isinstance(seen.inventory, Unread) and seen.kernel_driver is None
    ):
        return _no_driver(seen)
    if isinstance(seen.inventory, Unread) or seen.inventory.gpus or seen.inventory.unread:
        return None
    on_bus = f"{seen.gpus_on_bus} on the PCI bus" if seen.gpus_on_bus else "none is on the PCI bus"
    return ConfigError(
        f"the NVIDIA driver {seen.kernel_driver or ''} reports no GPU; {on_bus}".replace("  ", " "),
        "bind the GPUs to the kernel driver nvidia, if they are bound to another",
    )


def _no_driver(seen: NodeSeen) -> ConfigError:
    why = seen.driver_files.why if isinstance(seen.driver_files, Unread) else ""
    if not why and isinstance(seen.inventory, Unread):
        why = seen.inventory.why
    if not seen.gpus_on_bus:
        return ConfigError(
            f"there is nothing to verify: no NVIDIA GPU is on the PCI bus; {why}",
            "run this on a machine with an NVIDIA GPU; in a container, give it the GPU and the driver",
        )
    return ConfigError(
        f"{seen.gpus_on_bus} NVIDIA GPUs are on the PCI bus, but there is no working NVIDIA driver: {why}",
        "install the NVIDIA driver until `nvidia-smi` works; in a container, name it with --driver-root",
    )
