"""The supervisor answers probes: ready while it answers and daemons run as asked, alive always."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from driver.process.pulse import Pulse
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.kubelet.wire.server import SocketServer
from kubeletplugin.sharing.mps.supervisor import handlers, probes_of
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, running, told
from tests.kubeletplugin.sharing.mps.supervisor_process import SupervisorProcess
from tests.kubeletplugin.stream_client import StreamClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubeletplugin.sharing.mps.supervisor import Supervisor


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def serving(mps: MpsScene, supervisor: Supervisor) -> Iterator[SocketServer]:
    with ThreadPoolExecutor(8) as pool:
        server = SocketServer(mps.mps_dir / SOCKET, handlers(supervisor), pool)
        server.start()
        try:
            yield server
        finally:
            server.stop(0)


def test_daemons_that_run_and_none_at_all_are_ready(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    with serving(mps, supervisor) as server:
        probes = probes_of(supervisor, server.path, Pulse())
        assert probes.ready() == ""

        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)

        assert [probes.started(), probes.alive(), probes.ready()] == [""] * 3


def test_a_daemon_that_does_not_run_is_named_and_ends_nothing(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    with serving(mps, supervisor) as server:
        probes = probes_of(supervisor, server.path, Pulse())
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
        mps.machine.spoil_mps("refuse", "start", "the GPU is gone")
        mps.kill()
        told(supervisor.follow(StreamClient()), lambda states: "the GPU is gone" in states[0].message)

        assert f"the MPS daemon {NAME} does not run: " in probes.ready()
        assert "the GPU is gone" in probes.ready()
        assert [probes.started(), probes.alive()] == [""] * 2

        mps.machine.heal_mps()
        told(supervisor.follow(StreamClient()), running)
        assert probes.ready() == ""


def test_a_supervisor_that_hangs_is_alive_and_not_ready(mps: MpsScene) -> None:
    supervisor, clock = mps.supervisor(), Clock()
    with serving(mps, supervisor) as server:
        pulse = Pulse(5.0, clock)
        probes = probes_of(supervisor, server.path, pulse)
        with pulse.work("mps-restart"):
            clock.now = 6.0
            assert probes.ready() == "mps-restart has been running for 6 s"
            assert probes.alive() == ""
        assert probes.ready() == ""


def test_the_supervisor_is_probed_at_its_address(mps: MpsScene) -> None:
    with SupervisorProcess(mps, health_addr="127.0.0.1:0") as process:
        port = process.wait_for("serving probes")["port"]
        for path in ("/startupz", "/livez", "/readyz"):
            connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")
            connection.close()
