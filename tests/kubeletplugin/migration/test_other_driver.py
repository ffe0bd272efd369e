"""NVIDIA's driver is told from instances of this one by what answers at its sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.migration.other_driver import other_driver
from tests.kubeletplugin.fake_kubelet import running_plugin, short_folder
from tests.nvidia_driver import NvidiaDriver

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        for name in ("plugins", "registry", "cdi"):
            (made / name).mkdir()
        yield made


def nvidia(folder: Path) -> NvidiaDriver:
    return NvidiaDriver("n", folder / "plugins", folder / "registry", folder / "cdi", {}, lambda *_: {})


def found(folder: Path) -> Path | None:
    return other_driver(folder / "plugins" / DRIVER, folder / "registry", DRIVER)


def test_a_node_without_any_driver_has_none(folder: Path) -> None:
    assert found(folder) is None


def test_nvidias_driver_is_seen_while_it_answers(folder: Path) -> None:
    with nvidia(folder) as running:
        assert found(folder) == running.registration_socket
        running.registration_socket.unlink()
        assert found(folder) == running.service_socket
    assert found(folder) is None


def test_an_instance_of_this_driver_is_none() -> None:
    with running_plugin() as plugin:
        data, registry = plugin.service_socket.parent, plugin.registration_socket.parent
        assert other_driver(data, registry, DRIVER) is None


def test_sockets_that_nobody_listens_at_are_left_over(folder: Path) -> None:
    left = folder / "registry" / f"{DRIVER}-reg.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(left))
    (folder / "registry" / f"{DRIVER}-0b-reg.sock").write_text("no socket")
    assert found(folder) is None


def test_drivers_of_other_names_do_not_matter(folder: Path) -> None:
    with nvidia(folder) as running:
        running.service_socket.unlink()
        running.registration_socket.rename(folder / "registry" / "compute-domain.nvidia.com-reg.sock")
        assert found(folder) is None
