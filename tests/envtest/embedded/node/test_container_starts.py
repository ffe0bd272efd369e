"""A container counts as running only after its createRuntime hooks; one that ended is started again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.embedded.node.containers import Container
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.node.kubelet_node import Node, main
from tests.gpuctl.demo.hook_socket import YES, AnsweringSocket
from tests.kubeletplugin.fake_kubelet import running_plugin

NO = {"ok": False, "message": "gpu-0 has no room for it"}


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose device ``a`` has a hook, of which it says where the plugin listens."""
    with EmbeddedApiServer() as server, running_plugin() as plugin:
        one = Node(server, plugin)
        program = one.layout.folder / "gpu-memory-hook"
        program.write_text("not started")
        program.chmod(0o755)
        arguments = ("--claim=uid", "--device=uid-0", f"--sockets={sockets(one)}", "--seconds=0.3")
        args = ["gpu-memory-hook", *arguments]
        hook = {"hookName": "createRuntime", "path": str(program), "args": args}
        devices = [{"name": "a", "containerEdits": {"hooks": [hook]}}, *one.spec["devices"][1:]]
        one.spec_file.write_text(json.dumps({**one.spec, "devices": devices}))
        one.start()
        yield one
        one.kubelet.stop()


def sockets(node: Node) -> Path:
    return node.layout.folder / "s"


def last(node: Node, pod: str, container: str = "main") -> Container | None:
    stored = node.pod(pod)
    found = node.runtime.find(stored["metadata"]["uid"]) if stored else None
    return None if found is None else found.last(container)


def status(node: Node, pod: str, container: str = "main") -> Object:
    shown = (node.pod(pod) or {}).get("status", {})
    both = [*shown.get("containerStatuses", ()), *shown.get("initContainerStatuses", ())]
    found: Object = next((one for one in both if one["name"] == container), {})
    return found


def runs(node: Node, pod: str, container: str = "main", restarts: int = 0) -> bool:
    shown = status(node, pod, container)
    return "running" in shown.get("state", {}) and shown["restartCount"] == restarts


def kill(node: Node, pod: str) -> None:
    running = last(node, pod)
    assert running is not None
    node.runtime.kill_container(running)


def folder(node: Node, container: Container) -> Path:
    return node.layout.cgroup_dir / container.cgroup.lstrip("/")


def test_the_hook_is_asked_before_a_container_runs_and_again_for_each_restart(node: Node) -> None:
    there: list[tuple[str, bool, bool]] = []

    def answer(asked: Object) -> Object:
        path = asked["cgroup"].removeprefix("0::").strip().lstrip("/")
        # The status may still show the container that ended, so this one is known by its count of restarts.
        running = runs(node, "train", restarts=len(there))
        there.append((path, (node.layout.cgroup_dir / path).is_dir(), running))
        return YES

    with AnsweringSocket(sockets(node) / "a.sock", answer) as plugin:
        node.bind("train", "gpus", main(), main("other", request="second"))
        node.wait(lambda: runs(node, "train"))
        first = last(node, "train")
        kill(node, "train")
        node.wait(lambda: runs(node, "train", restarts=1))
        second = last(node, "train")

    assert first is not None
    assert second is not None
    assert there == [(one.cgroup.lstrip("/"), True, False) for one in (first, second)]
    assert first.cgroup != second.cgroup
    assert not folder(node, first).exists()
    names = [one["state"]["annotations"]["io.kubernetes.cri.container-name"] for one in plugin.asked]
    assert names == ["main", "main"], "the other container has no such device"
    assert status(node, "train")["lastState"]["terminated"]["exitCode"] == 137
    node.delete("train")
    node.wait(lambda: not folder(node, second).parent.exists())


def test_a_refused_container_is_told_of_and_tried_again_while_others_run(node: Node) -> None:
    answers: list[Object] = [NO, NO]

    with AnsweringSocket(sockets(node) / "a.sock", lambda _asked: answers.pop() if answers else YES):
        node.bind("train", "gpus", main(), main("other", request="second"))

        words = "error running createRuntime hook #0: exit status 1, stdout: , stderr: "
        node.wait(lambda: node.told("Failed", words))
        node.wait(lambda: runs(node, "train", "other"))
        node.wait(lambda: runs(node, "train", restarts=2))

    ended = status(node, "train")["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert words in ended["message"]
    node.wait(lambda: node.phase("train") == "Running")


def test_init_containers_have_their_groups_until_they_end_and_sidecars_stay(node: Node) -> None:
    setup: Object = {**main("setup"), "command": ["true"]}
    beside: Object = {**main("beside"), "restartPolicy": "Always"}

    with AnsweringSocket(sockets(node) / "a.sock") as plugin:
        node.bind("train", "gpus", main(), initial=(setup, beside))
        node.wait(lambda: runs(node, "train"))

    order = [one["state"]["annotations"]["io.kubernetes.cri.container-name"] for one in plugin.asked]
    assert order == ["setup", "beside", "main"]
    ended, stays = last(node, "train", "setup"), last(node, "train", "beside")
    assert ended is not None
    assert stays is not None
    assert not folder(node, ended).exists()
    assert folder(node, stays).is_dir()
    assert status(node, "train", "setup")["state"]["terminated"]["reason"] == "Completed"
    assert status(node, "train", "beside")["started"]
