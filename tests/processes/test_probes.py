"""What a kubelet's probes are answered: a hung process is not alive, a sick GPU makes nothing restart."""

from collections.abc import Callable
from http.client import HTTPConnection, HTTPException

from tests.clusters import BRISK
from tests.eventually import WAIT_SECONDS, eventually
from tests.processes.hanging import HANGS_ONCE_THERE
from tests.processes.node import Node
from tests.processes.process import DriverProcess

Answer = tuple[int, str]
OK: Answer = (200, "ok")
ANY_PORT = "127.0.0.1:0"


def port_of(process: DriverProcess) -> int:
    """Where the process answers probes."""
    port: int = process.wait_for("serving probes")["port"]
    return port


def asked(port: int, path: str, within_seconds: float = WAIT_SECONDS) -> Answer:
    """Status and sentence; raises OSError or HTTPException when nobody answers."""
    connection = HTTPConnection("127.0.0.1", port, timeout=within_seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().rstrip("\n")
    finally:
        connection.close()


def comes_to(port: int, path: str, is_it: Callable[[Answer], bool]) -> Answer:
    """Ask until the answer is such a one, and return it; nobody need answer yet."""

    def answer() -> Answer:
        try:
            return asked(port, path)
        except (OSError, HTTPException) as error:
            return 0, str(error)

    return eventually(f"{path} answers so", answer, is_it)


def well(answer: Answer) -> bool:
    return answer == OK


def test_the_plugin_is_started_by_itself_and_ready_once_the_kubelet_has_it_registered(node: Node) -> None:
    with DriverProcess("kubeletplugin", *node.plugin_flags(health_addr=ANY_PORT)) as plugin:
        port = port_of(plugin)
        assert comes_to(port, "/startupz", well) == OK
        code, sentence = asked(port, "/readyz")
        assert code == 503
        assert f"the kubelet never connected to {node.registration_socket}" in sentence

        node.register(plugin)

        assert comes_to(port, "/readyz", well) == OK
        assert asked(port, "/livez") == OK
        assert plugin.stop() == 0


def test_the_controller_is_ready_once_it_has_published_what_there_is(node: Node) -> None:
    with node.controller(health_addr=ANY_PORT) as controller:
        port = port_of(controller)
        assert comes_to(port, "/readyz", lambda answer: "no kubelet plugin" in answer[1])[0] == 503
        assert asked(port, "/startupz") == OK
        with node.plugin():
            assert comes_to(port, "/readyz", well) == OK
            assert len(node.devices()) == 8
        assert asked(port, "/livez") == OK
        assert controller.stop() == 0


def test_a_controller_whose_look_at_the_gpus_hangs_is_not_alive(node: Node) -> None:
    flags = node.controller_flags(health_addr=ANY_PORT)
    hangs = node.folder / "hangs"
    told = {HANGS_ONCE_THERE: str(hangs)}
    with node.plugin(), DriverProcess("tests.processes.hanging", "controller", *flags, **told) as controller:
        node.publishes(8)

        hangs.touch()

        code, sentence = comes_to(
            port_of(controller), "/livez", lambda answer: "has been running" in answer[1]
        )

        assert code == 503
        assert sentence.startswith("offers has been running for ")


def test_a_plugin_one_of_whose_loops_hangs_is_not_alive(node: Node) -> None:
    flags = node.plugin_flags(health_addr=ANY_PORT)
    with DriverProcess("tests.processes.hanging", "kubeletplugin", *flags) as plugin:
        port = port_of(plugin)
        node.register(plugin)
        assert comes_to(port, "/readyz", well) == OK
        assert asked(port, "/livez") == OK
        assert node.prepare(node.claim("train", node.gpus[0]))[0].error == ""

        code, sentence = comes_to(port, "/livez", lambda answer: "has been running" in answer[1])

        assert code == 503
        assert sentence.startswith("health has been running for ")


def test_an_api_server_that_is_away_ends_neither(node: Node) -> None:
    away = node.folder / "away"
    away.write_text(node.kubeconfig.read_text().replace(node.server.url, "http://127.0.0.1:9"))
    flags = {"kubeconfig": str(away), "health_addr": ANY_PORT}
    with node.plugin(**flags) as plugin, node.controller(**flags) as controller:
        controller.wait_for("cannot read the node")
        assert comes_to(port_of(plugin), "/readyz", well) == OK
        assert asked(port_of(plugin), "/livez") == OK
        port = port_of(controller)
        assert asked(port, "/livez") == OK
        assert asked(port, "/startupz") == OK
        assert asked(port, "/readyz") == (503, "the node has not been read from the API server yet")


def test_an_api_server_that_is_too_old_is_refused_by_name_and_used_once_it_is_upgraded(node: Node) -> None:
    node.server.minor = "35"
    flags = node.controller_flags(health_addr=ANY_PORT)
    with node.plugin(), DriverProcess(*BRISK, "controller", *flags) as controller:
        controller.wait_for("the API server is too old, so nothing is published", level="error")
        port = port_of(controller)
        assert comes_to(port, "/readyz", lambda answer: "1.35" in answer[1])[0] == 503
        assert node.slices() == []

        node.server.minor = "36"

        assert comes_to(port, "/readyz", well) == OK
        assert len(node.devices()) == 8
