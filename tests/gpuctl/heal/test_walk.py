"""With ``--yes`` new pods are kept away, those that are there are evicted, and the GPU is reset."""

import json
import threading
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from gpuctl.cli.output import AMISS_EXIT_CODE
from kubeletplugin.kubelet.wire.heal import HoldingClaim
from tests.clusters import Object, commands
from tests.gpuctl.documents import read_document
from tests.gpuctl.heal.scene import ADDRESS, DEVICE, GPU, HealScene, looked, plays
from tests.gpus import taints
from tests.plugin import HealProgress, HealRequest, UsingProcess


class PlayedPlugin:
    """A plugin that waits until no claim has the GPU, and tells so again and again, as the real one does.

    Meanwhile ``acts`` happen one after the other: each is tried until it says that it has happened.
    """

    def __init__(self, scene: HealScene, *acts: Callable[[], bool], left: tuple[str, ...] = ()) -> None:
        """``left`` are the taints of the GPU after its reset."""
        self._scene = scene
        self._acts = list(acts)
        self._left = left
        self.reset = False

    def __call__(self, wish: HealRequest) -> Iterator[HealProgress]:
        if not wish.reset:
            yield looked()
            return
        while holders := self._holders():
            yield HealProgress("waits", (ADDRESS,), holders, (UsingProcess(17, "dcgm"),))
            if not self._acts:
                yield HealProgress("failed", (ADDRESS,), message="not reset, since claim default/mine stays")
                return
            if self._acts[0]():
                self._acts.pop(0)
            threading.Event().wait(0.02)
        self.reset = True
        yield HealProgress("resets", (ADDRESS,))
        self._scene.taint(*self._left)
        yield HealProgress("healed", (ADDRESS,))

    def _holders(self) -> tuple[HoldingClaim, ...]:
        claims: list[Object] = self._scene.server.objects("resourceclaims", "resource.k8s.io")
        return tuple(
            HoldingClaim("default", one["metadata"]["name"], one["metadata"]["uid"])
            for one in claims
            for result in one["status"].get("allocation", {}).get("devices", {}).get("results", ())
            if result["device"] == DEVICE
        )


def names(scene: HealScene) -> list[str]:
    """The pods that are left in the namespace of the users."""
    pods = scene.server.objects("pods")
    return sorted(
        one["metadata"]["name"]
        for one in pods
        if one["metadata"]["namespace"] == "default" and "deletionTimestamp" not in one["metadata"]
    )


def ends_evicted(scene: HealScene) -> bool:
    """End the pods that were evicted as a kubelet does; whether there were any."""
    evicted = any("deletionTimestamp" in pod["metadata"] for pod in scene.server.objects("pods"))
    if evicted:
        scene.end_pods()
    return evicted


def keep_free(scene: HealScene) -> bool:
    scene.taint(taints.TAINT_RESET, taints.TAINT_BLOCKED)
    return True


def test_pods_that_have_the_gpu_are_evicted_and_it_is_well_then(scene: HealScene) -> None:
    scene.sick()
    scene.claim("mine", DEVICE, scene.pod("train"))
    scene.claim("other", "gpu-0000-43-00-0", scene.pod("beside"))
    plugin = PlayedPlugin(scene, lambda: ends_evicted(scene))
    with scene.served(plugin):
        ran = scene.healed("--yes", "--timeout", "60")

    assert ran.exit_code == 0, ran.output
    assert plugin.reset
    assert names(scene) == ["beside"]
    of_a_moment = (
        f"waiting: claim default/mine still has {DEVICE}",  # a look came between the two ends
        "waiting: the slices do not keep new pods away yet",  # or after the reset, not read yet
    )
    assert [line for line in ran.stdout.splitlines() if line not in of_a_moment] == [
        "new pods are kept away from the GPU while this waits",
        "waiting: pod default/train is ending",
        "waiting: process 17 (dcgm) uses the GPU",
        "the GPU is not in use any more; resetting it",
        "the GPU was reset and answers; waiting until its taints are gone",
        f"GPU {GPU} of node-a is healthy: its taints are gone",
    ]
    assert [(wish.gpu, wish.reset, wish.wait_seconds) for wish in scene.wishes][-1] == (GPU, True, 60.0)


def test_nobody_is_evicted_before_new_pods_are_kept_away(scene: HealScene) -> None:
    scene.taint(taints.TAINT_MEMORY, effect="None")
    scene.claim("mine", DEVICE, scene.pod("train"))
    before = scene.server.count("list", "resourceslices")
    plan_and_one_more = before + 2

    def was_looked_at() -> bool:
        return scene.server.count("list", "resourceslices") > plan_and_one_more

    seen: list[list[str]] = []

    def note() -> bool:
        seen.append(names(scene))
        return True

    plugin = PlayedPlugin(scene, was_looked_at, note, lambda: keep_free(scene), lambda: ends_evicted(scene))
    with scene.served(plugin):
        ran = scene.healed("--yes")

    assert seen == [["train"]]
    assert "waiting: the slices do not keep new pods away yet" in ran.stdout
    assert (ran.exit_code, names(scene)) == (0, [])


@pytest.mark.parametrize("pods", [["train"], []], ids=["pod", "nobody"])
def test_who_stays_keeps_the_gpu_and_is_named(scene: HealScene, pods: list[str]) -> None:
    scene.claim("mine", DEVICE, *map(scene.pod, pods))
    scene.sick()
    scene.server.fail("create", "eviction", code=429)
    plugin = PlayedPlugin(scene)
    with scene.served(plugin):
        ran = scene.healed("--yes")

    assert ran.exit_code == AMISS_EXIT_CODE
    assert "claim default/mine stays" in ran.stderr
    assert pods or f"waiting: claim default/mine still has {DEVICE}" in ran.stdout
    assert (plugin.reset, names(scene)) == (False, pods)


@pytest.mark.parametrize("left", [(), (taints.TAINT_MEMORY,)], ids=["well", "ill"])
def test_a_gpu_is_called_well_after_its_reset_if_it_is(scene: HealScene, left: tuple[str, ...]) -> None:
    scene.sick()
    with scene.served(PlayedPlugin(scene, left=left)):
        ran = scene.healed("--yes", "-o", "json")

    told = read_document(ran.stdout, "Heal")
    assert (ran.exit_code, told["healed"]) == ((AMISS_EXIT_CODE, False) if left else (0, True))
    why = [f"GPU {GPU} has gpu.nvidia.com/memory:NoSchedule" for _ in left]
    assert [line[: len(why[0])] for line in told.get("left", ())] == why
    assert not left or "the GPU was reset" in ran.stderr


def here(scene: HealScene, *arguments: str) -> tuple[int, str]:
    """What the command in the plugin's pod ends with and prints."""
    words = ["heal", "--here", GPU, "--plugins-dir", str(scene.plugins), *arguments]
    ran = CliRunner().invoke(commands, words, catch_exceptions=False)
    return ran.exit_code, ran.stdout


def test_on_the_node_itself_each_step_is_a_line(scene: HealScene) -> None:
    holders = (HoldingClaim("team", "train", "u"),)
    steps = (
        HealProgress("waits", (ADDRESS,), holders, (UsingProcess(17, "x", "p"),)),
        HealProgress("waits", (ADDRESS,), holders),
        HealProgress("resets", (ADDRESS,)),
        HealProgress("healed", (ADDRESS,)),
    )
    with scene.served(plays(*steps)):
        code, told = here(scene, "--yes")
        assert (code, told.splitlines()) == (
            0,
            [
                *("in the way: claim team/train", "in the way: process 17 (x), in the pod with UID p"),
                *(f"{GPU}: being reset", f"{GPU}: reset"),
            ],
        )
        code, told = here(scene, "--yes", "-o", "json")
    assert code == 0
    documents = [read_document(line, "HealStep") for line in told.splitlines()]
    assert [one["step"] for one in documents] == ["waits", "waits", "resets", "healed"]
    assert documents[0]["processes"] == [{"processId": 17, "name": "x", "podUid": "p"}]


def test_lines_that_are_no_steps_are_refused(scene: HealScene) -> None:
    program = scene.kubectl.folder / "kubectl"
    program.write_text("#!/bin/sh\necho '{\"step\": 1}'\n")
    scene.sick()
    assert "an unknown answer" in scene.healed().stdout
    assert json.loads(scene.healed("-o", "json").stdout)["unknown"]
