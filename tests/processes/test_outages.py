"""What happens when a GPU, the driver, the disk or the API server fails while the processes run."""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.eventually import eventually
from tests.processes.node import Node
from tests.processes.process import DriverProcess


@contextmanager
def full_disk(process: DriverProcess) -> Iterator[None]:
    """Let every write of the process to a file fail (EFBIG), as ENOSPC does on a full disk."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> set[str]:
    """The files of a folder that are not hidden."""
    return {path.name for path in folder.iterdir()}


def test_a_full_disk_fails_the_claim_alone_and_loses_nothing(node: Node) -> None:
    prepared, refused = node.claim("prepared", node.gpus[0]), node.claim("refused", node.gpus[1])
    with node.plugin() as plugin:
        (first,) = node.prepare(prepared)
        journal, specs = names(node.journal), names(node.cdi)

        with full_disk(plugin):
            (answer,) = node.prepare(refused)
            assert f"writing {node.journal}/{refused.uid}.json failed" in answer.error
            assert f"check that the folder {node.journal} exists, is writable and has space" in answer.error
            node.wait_warning(refused, "failed", "has space")
            assert node.prepare(prepared) == [first]
            assert (names(node.journal), names(node.cdi)) == (journal, specs)

            assert node.unprepare(prepared) == [""]
            assert names(node.cdi) == set()

        assert node.prepare(refused)[0].error == ""
        assert plugin.stop() == 0


def test_a_truncated_journal_file_is_put_aside_and_only_its_claim_suffers(node: Node) -> None:
    torn, whole = node.claim("torn", node.gpus[0]), node.claim("whole", node.gpus[1])
    with node.plugin() as plugin:
        before = node.prepare(torn, whole)
        assert plugin.stop() == 0
    file = node.journal / f"{torn.uid}.json"
    content = file.read_bytes()[:40]
    file.write_bytes(content)
    thief = node.claim("thief", node.gpus[0])

    with node.plugin() as plugin:
        told = plugin.wait_for("journal file cannot be read and was put aside", uid=torn.uid)
        assert told["level"] == "error"
        assert plugin.wait_for("journal entries of claims were lost; their GPUs are blocked")["uids"] == [
            torn.uid
        ]
        (aside,) = (node.journal / "unreadable").iterdir()
        assert told["file"] == str(aside)
        assert aside.read_bytes() == content

        (answer,) = node.prepare(thief, within_seconds=3)
        assert f"device {node.gpus[0]} is still held by another claim" in answer.error
        assert node.prepare(torn, whole) == before
        assert node.unprepare(torn) == [""]
        assert node.prepare(thief)[0].error == ""
        assert plugin.stop() == 0


def test_a_claim_waits_for_the_api_server_while_others_are_answered(node: Node) -> None:
    known, waiting = node.claim("known", node.gpus[0]), node.claim("waiting", node.gpus[1])
    with node.plugin() as plugin, ThreadPoolExecutor() as pool:
        (first,) = node.prepare(known)
        node.server.stop()
        call = pool.submit(node.prepare, waiting)
        told = plugin.wait_for("prepare is waiting", uid=waiting.uid)
        assert "check that the API server runs and can be reached" in told["error"]

        assert node.prepare(known) == [first]
        assert node.unprepare(known) == [""]
        assert not call.done()

        node.server.start()
        assert call.result()[0].error == ""
        node.wait_warning(waiting, "no answer to")
        assert plugin.stop() == 0


def test_a_claim_in_flight_is_finished_when_the_plugin_is_told_to_stop(node: Node) -> None:
    claim = node.claim("train", node.gpus[0])
    with node.plugin() as plugin, node.controller() as controller, ThreadPoolExecutor() as pool:
        node.publishes(8)
        held_up = node.server.fail("get", "resourceclaims/train$", kind="hang")
        call = pool.submit(node.prepare, claim)
        eventually("the call is held up", lambda: held_up.times, lambda times: times == 0)

        plugin.terminate()
        plugin.wait_for("stopped serving", socket=str(node.registration_socket))
        held_up.release()

        (answer,) = call.result()
        assert answer.error == ""
        assert node.spec(claim).exists()
        assert plugin.exit_code() == 0
        assert names(node.registry) == set()
        assert not node.service_socket.exists()
        controller.wait_for("kubelet plugin does not serve")
        assert len(node.devices()) == 8
        assert controller.stop() == 0
        assert len(node.devices()) == 8
