"""NVML let go of: no session is held, none is begun, and others wait or pass by."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.driver.hardware.looked_at import Node
from tests.gpus import LetGo, NvmlError, NvmlTimeout


@pytest.fixture
def eyes(tmp_path: Path) -> Iterator[Node]:
    """Four A30 whose calls have little time."""
    with Node.looking("a30-quad", tmp_path, 0.5) as eyes:
        yield eyes


def test_within_the_block_no_session_is_held_nor_begun_and_the_next_call_begins_one(eyes: Node) -> None:
    eyes.discovery.snapshot()
    assert eyes.has_session()
    with eyes.discovery.let_go():
        assert not eyes.has_session()
        with pytest.raises(LetGo):
            eyes.discovery.snapshot()
        assert not eyes.has_session()
    assert not eyes.has_session()
    assert eyes.discovery.identity(eyes.machine.pci(0)).uuid == eyes.machine.uuid(eyes.machine.pci(0))
    assert eyes.has_session()
    assert len(eyes.discovery.snapshot().gpus) == 4


def test_a_call_of_another_thread_waits_until_the_block_is_left(eyes: Node) -> None:
    with ThreadPoolExecutor(1) as pool:
        with eyes.discovery.let_go():
            asked = pool.submit(eyes.discovery.identity, eyes.machine.pci(0))
            assert not eyes.has_session()
        assert asked.result(10).minor == 0


def test_calls_under_way_are_waited_for(eyes: Node) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def job(_device: object, _watch: object) -> None:
        under_way.set()
        assert go_on.wait(10)

    with ThreadPoolExecutor(2) as pool:
        working = pool.submit(eyes.discovery.on_gpu, eyes.machine.pci(0), job)
        assert under_way.wait(10)
        with pytest.raises(LetGo, match="has not returned yet"), eyes.discovery.let_go(wait_seconds=0.01):
            raise AssertionError
        assert eyes.has_session()
        go_on.set()
        working.result(10)
        with eyes.discovery.let_go():
            assert not eyes.has_session()


def test_a_call_that_hangs_holds_its_gpu_so_nothing_is_let_go_of(eyes: Node) -> None:
    eyes.discovery.snapshot()
    eyes.machine.hang("uuid")
    with pytest.raises(NvmlTimeout):
        eyes.discovery.identity(eyes.machine.pci(0))
    with pytest.raises(LetGo, match="does not return"), eyes.discovery.let_go():
        raise AssertionError


@pytest.mark.parametrize("how", ["hang", "fail"])
def test_a_session_that_does_not_end_is_not_let_go_of(eyes: Node, how: str) -> None:
    eyes.discovery.snapshot()
    getattr(eyes.machine, how)("shutdown")
    with pytest.raises(NvmlError, match="nvmlShutdown"), eyes.discovery.let_go():
        raise AssertionError
