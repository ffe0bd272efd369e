"""Allocations are heard of when they are written, while somebody asks, and of this pool alone."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from controller.observe.allocations import ClaimWatch
from driver.kube.client import KubeClient
from envtest.embedded.server import Fault
from tests.controller.allocated import POOL, allocate, end_claim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envtest.embedded.server import EmbeddedApiServer


class Heard:
    """What was told, one after the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.told: list[frozenset[str]] = []

    def __call__(self, names: frozenset[str]) -> None:
        with self._changed:
            self.told.append(names)
            self._changed.notify_all()

    def comes_to(self, *names: str) -> bool:
        """Wait until exactly these were told last."""
        with self._changed:
            return self._changed.wait_for(lambda: self.told[-1:] == [frozenset(names)], 10)


@contextmanager
def watching(server: EmbeddedApiServer, folder: Path) -> Iterator[tuple[ClaimWatch, Heard]]:
    heard = Heard()
    client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
    watch = ClaimWatch(client, heard, node="node-a", driver="gpu.nvidia.com", pool=POOL)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch, heard
    finally:
        watch.stop()
        thread.join(10)
        client.close()
    assert not thread.is_alive()


def test_nothing_is_asked_of_the_server_before_somebody_wants_it(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    with watching(server, tmp_path):
        pass
    assert server.count("list", "pods") == 0


def test_allocations_are_told_as_they_come_and_go(server: EmbeddedApiServer, tmp_path: Path) -> None:
    allocate(server, "before", "gpu-a")
    with watching(server, tmp_path) as (watch, heard):
        watch.follow(True)
        assert heard.comes_to("gpu-a")
        allocate(server, "elsewhere", "gpu-x", pool="node-b/gpu.nvidia.com")
        allocate(server, "late", "gpu-b")
        assert heard.comes_to("gpu-a", "gpu-b")
        end_claim(server, "before")
        assert heard.comes_to("gpu-b")
    assert not any("gpu-x" in names for names in heard.told)


def test_a_server_that_forbids_everything_while_it_starts_hides_no_claim(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        allocate(server, name, f"gpu-{name}")
    server.faults.add(Fault("get", "resourceclaims", code=403))
    with watching(server, tmp_path) as (watch, heard):
        watch.follow(True)
        assert heard.comes_to("gpu-a", "gpu-b")


def test_nothing_is_known_any_more_when_nobody_asks(server: EmbeddedApiServer, tmp_path: Path) -> None:
    allocate(server, "train", "gpu-a")
    with watching(server, tmp_path) as (watch, heard):
        watch.follow(True)
        assert heard.comes_to("gpu-a")
        watch.follow(False)
        assert heard.comes_to()
        watch.follow(True)
        assert heard.comes_to("gpu-a")
