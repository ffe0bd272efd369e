"""A node whose shares the plugin holds to their memory: real runc, real cgroups, the double of NVML.

The plugin's parts run in processes of their own, built by the plugin's own assembly. What lies on the disk
outlives them.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.devices.names import gpu_device_name
from driver.nvml.api import Nvml
from driver.nvml.real import RealNvml
from driver.roots.driver_roots import DriverRoots
from kubeletplugin.claims.cdi.spec import memory_sockets
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory.cgroups import Cgroups, RealCgroups
from kubeletplugin.sharing.memory.hook_socket import HookSocket
from kubeletplugin.sharing.memory.one_gpu import FOLDER as LEDGER
from tests.eventually import eventually
from tests.guest.inside.memory.built import Built
from tests.guest.inside.memory.containers import CGROUPS, Container, Runc
from tests.guest.inside.memory.plugin_process import PluginProcess
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver
from tests.nvml_library.library import NvmlDouble, limits_now, most_together

MACHINE, FIRST = "l4-quad", "plugin-a"
GIB, MIB = 1 << 30, 1 << 20
PATIENCE_SECONDS = 1.0
"""How long the plugin waits for what passes by itself, before it refuses a container."""


class LimitedNode(FakeNode):
    """A node of fake GPUs whose NVML is a compiled library, and whose cgroups are this kernel's."""

    def __init__(self, folder: Path, built: Built) -> None:
        self._built = built
        super().__init__(folder, MACHINE, on_disk=True)
        self.memory_hook = built.hook
        self.patience_seconds = PATIENCE_SECONDS

    def nvml(self) -> Nvml:
        """The binding over the library below the node's driver root."""
        return RealNvml(DriverRoots.fixed(self.driver_root))

    def control_groups(self) -> Cgroups:
        """Those of the kernel."""
        return RealCgroups(CGROUPS)

    def list(self, containers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Have the kubelet list these containers, by CDI device."""
        self.listed_containers = {
            device: frozenset(ContainerName(*name) for name in names) for device, names in containers.items()
        }

    def lay_double(self) -> NvmlDouble:
        """Lay the library into the node's driver root."""
        reinstall_driver(self.driver_root, self.machine)
        return NvmlDouble.lay(self.driver_root, self.machine, self._built.nvml)

    def begin(self, instance: str) -> Callable[[dict[str, Any]], Any]:
        """Start the plugin in this process; returns what does what others would have it do."""
        self.restart()
        hooks = HookSocket(memory_sockets(self.folder), instance, self.memory.start)
        hooks.open()
        answering = threading.Thread(target=hooks.run)
        answering.start()

        def do(order: dict[str, Any]) -> Any:
            match order["what"]:
                case "prepare":
                    ref = ClaimRef(*order["ref"])
                    self.api[ref.namespace, ref.name] = order["claim"]
                    self.published_attributes = order["attributes"]
                    return [one.cdi_device_ids for one in self.prepare(ref)]
                case "unprepare":
                    left = self.unprepare(ClaimRef(*order["ref"]))
                    return left and str(left)
                case "expect":
                    self.list(order["containers"])
                case "pass":
                    self.memory.run_once()
                case "stop":
                    self.memory.stop()
                    hooks.stop()
                    answering.join()
                    self.stop()
            return None

        return do


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that is prepared: what the kubelet calls it, its CDI device, and the GPU."""

    ref: ClaimRef
    device: str
    uuid: str


class Scene:
    """The node, the plugin's processes by the names of their instances, and the containers."""

    def __init__(self, folder: Path, built: Built) -> None:
        self.built = built
        self.node = LimitedNode(folder, built)
        self.node.stop()
        self.double = self.node.lay_double()
        self.runc = Runc.lay(folder / "runc", self.node.cdi, self.double.record_file, built.first)
        self.plugins: dict[str, PluginProcess] = {}
        self.claims: list[Claim] = []
        self.containers: list[Container] = []
        self._expected: dict[str, list[tuple[str, str, str]]] = {}

    def start_plugin(self, instance: str = FIRST) -> None:
        """Start an instance; it is forked from this process, and so knows what the kubelet lists."""
        self.plugins[instance] = PluginProcess(instance, self.node.begin)

    def kill_plugin(self, instance: str = FIRST) -> None:
        """Kill an instance wherever it is."""
        self.plugins.pop(instance).kill()

    def stop_plugins(self) -> None:
        """Have all instances end in order."""
        while self.plugins:
            self.plugins.popitem()[1].stop()

    def claim(self, memory: str, gpu: int = 0) -> Claim:
        """Prepare a claim that was allocated so much of a time-sliced GPU."""
        device = f"{gpu_device_name(self.node.gpus[gpu])}-ts-mem"
        self.node.published_attributes[device] = {"memoryLimits": {"string": "cgroup"}}
        ref = self.node.claim_shares(f"claim-{len(self.claims)}", device, consumed={"memory": memory})
        self.order(
            "prepare",
            ref=[ref.namespace, ref.name, ref.uid],
            claim=self.node.api[ref.namespace, ref.name],
            attributes=self.node.published_attributes,
        )
        [made] = json.loads(self.node.spec_path(ref).read_text())["devices"]
        claim = Claim(ref, made["name"], self.uuid(gpu))
        self.claims.append(claim)
        return claim

    def unprepare(self, claim: Claim) -> None:
        """What the kubelet does when the last pod of a claim has ended."""
        assert self.order("unprepare", ref=[claim.ref.namespace, claim.ref.name, claim.ref.uid]) is None
        self.claims.remove(claim)

    def order(self, what: str, **values: Any) -> Any:
        """Have any instance do something."""
        return next(iter(self.plugins.values())).order(what, **values)

    def container(self, *claims: Claim, name: str = "main", **given: Any) -> Container:
        """A container of a pod that names these claims, not started yet."""
        container = Container(self.runc, name, [claim.device for claim in claims], **given)
        self.containers.append(container)
        return container

    def expect(self, claim: Claim, *containers: Container) -> None:
        """Have the kubelet list these containers of running pods for the claim."""
        self._expected[claim.device] = [("team", one.pod, one.name) for one in containers]
        self._tell()

    def _tell(self) -> None:
        self.node.list(self._expected)
        for plugin in self.plugins.values():
            plugin.order("expect", containers=self._expected)

    def begin(self) -> None:
        """Begin a test: nothing is there but the plugin."""
        if not self.plugins:
            self.start_plugin()
        self._expected = {}
        self._tell()
        self.double.forget()

    def end(self) -> None:
        """End a test: containers go, then claims, and nothing stays of either."""
        self.double.heal()
        if not self.plugins:
            self.start_plugin()
        for container in self.containers:
            container.end()
        self.containers.clear()
        for claim in tuple(self.claims):
            self.unprepare(claim)
        assert not (left := self.left()), left
        assert self.runc.running() == []

    def left(self) -> list[str]:
        """What is there of claims and containers: parts in the ledger, specs, limits; sockets of nobody."""
        sockets = memory_sockets(self.node.folder)
        live = {f"{instance}.sock" for instance in self.plugins}
        uuids = [self.uuid(gpu) for gpu in range(len(self.node.gpus))]
        limited = {path for uuid in uuids for path in limits_now(self.double.record(), uuid)}
        return sorted(
            [
                *(path.name for path in (self.node.boot_files / LEDGER).iterdir()),
                *(path.name for path in self.node.cdi.iterdir()),
                *(path.name for path in sockets.iterdir() if path.name not in live),
                *filter(is_there, limited),
            ]
        )

    def uuid(self, gpu: int = 0) -> str:
        """The UUID of a GPU by its position on the bus."""
        return self.node.machine.uuid(self.node.gpus[gpu])

    def limits(self, gpu: int = 0) -> dict[str, int]:
        """The hard limits on a GPU, by cgroup."""
        found = limits_now(self.double.record(), self.uuid(gpu))
        return {path: hard for path, (_soft, hard) in found.items() if is_there(path)}

    def limit(self, container: Container) -> int | None:
        """That of a container's own cgroup on the first GPU; None without one."""
        return self.limits().get(container.cgroup)

    def limit_before_it_ran(self, container: Container) -> int:
        """The limit that a container's own cgroup had when its first process ran, which was later."""
        eventually(f"{container.id} runs", lambda: self.ran(container), context=lambda: container.said)
        record = self.double.record()
        ran = next(at for at, told in enumerate(record) if (told.what, told.path) == ("ran", container.id))
        before = limits_now(record[:ran], self.uuid())
        assert container.cgroup in before, f"{container.id} ran without a limit: {record}"
        return before[container.cgroup][1]

    def ran(self, container: Container) -> bool:
        """Whether the first process of the latest start has run."""
        return any((told.what, told.path) == ("ran", container.id) for told in self.double.record())

    def wait_told(self, times: int) -> None:
        """Wait until NVML was asked or told so often."""
        eventually(f"NVML is told {times} times", self.double.record, lambda record: len(record) >= times)

    def most_together(self) -> int:
        """The most that the hard limits on the first GPU ever were together."""
        return most_together(self.double.record(), self.uuid())


def is_there(cgroup: str) -> bool:
    """Whether there is such a cgroup."""
    return Path(cgroup).is_dir()
