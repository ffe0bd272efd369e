"""Plays transcripts: text files that tell what is called on a fake node, and what changes by it.

A file begins with its node: ``on MACHINE``, perhaps ``with limits`` (of memory), ``with functions`` (of PCI)
or ``with channels`` (of IMEX); a story may have another. A story is a sentence after ``#``, and commands,
which are the methods of Player. Below each stands, indented, what it answered and what differs since then on
the node. ``- key`` is no more.

A device is ``0`` (a GPU by its position on the bus), ``m3`` (by its module), ``0:ts-4``, ``0:1g.10gb@6``,
``0:1g.10gb@6:mps-2``, ``channel-1``, or any name after ``!``, and after ``channel:`` for the driver of
channels. ``APPROVE=1`` writes what is indented again, so that git shows what would change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.kinds.passthrough.kind import passthrough_device_name
from kubeletplugin.reports.device_status import Observed, claim_statuses
from tests.clusters import Object
from tests.gpus import ApiError, ClaimBlocked, ClaimRefused, DriverError
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.channel_node import ChannelNode
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import with_config
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.share_node import config, slicing
from tests.kubeletplugin.sharing.limiting_node import limiting, publish
from tests.kubeletplugin.sharing.memory.memory_node import Container, MemoryNode
from tests.kubeletplugin.shown_in_transcripts import MIB, edits_shown, look, readable
from tests.kubeletplugin.shown_node import ONE, THREE
from tests.plugin import (
    ClaimRef,
    HealRequest,
    HeldDevice,
    PreparedDevice,
)
from tests.vgpu_hosts import turn_virtual_off

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Story:
    """One story of a file: ``told`` is all of its lines, the sentence first."""

    file: Path
    node: str
    told: str

    def __str__(self) -> str:
        sentence = self.told.partition("\n")[0].removeprefix("# ").replace(" ", "_")
        return f"{self.file.relative_to(FOLDER).with_suffix('')}-{sentence}"

    def check(self, folder: Path) -> None:
        """Play it on a new node in the folder, and compare."""
        player = Player(folder, *self.node.split()[1:])
        try:
            now = "".join(f"{line}\n" for line in player.play(self.told))
        finally:
            player.stop()
        if os.environ.get("APPROVE") == "1":
            self.file.write_text(self.file.read_text().replace(self.told, now))
        else:
            assert now == self.told, "play it with APPROVE=1, and read the difference in git"


def stories() -> list[Story]:
    """All stories of all files."""
    return [story for file in sorted(FOLDER.rglob("*.transcript")) for story in _read(file)]


def _read(file: Path) -> Iterator[Story]:
    node, *told = file.read_text().split("\n\n# ")
    for text in told:
        first = text.splitlines()[1]
        yield Story(file, first if first.startswith("on ") else node.splitlines()[-1], f"# {text.rstrip()}\n")


class Player:
    """A node, and a method for each command; each yields or returns what it answered."""

    def __init__(self, folder: Path, machine: str, *kind: str) -> None:
        self.node: FakeNode
        self.rack: ChannelNode | None = None
        if "limits" in kind:
            self.node = limiting(folder)
        elif "functions" in kind:
            self.node = PassthroughNode(folder, machine)
        elif "channels" in kind:
            self.rack = ChannelNode(folder)
            self.node = self.rack.node
        else:
            self.node = FakeNode(folder, machine)
        self.node.driver_generation = "load 1"
        self.refs: dict[str, ClaimRef] = {}
        self.answers: dict[str, tuple[PreparedDevice, ...]] = {}
        self.containers: dict[str, Container] = {}
        self._told = 0
        self._loads = 1

    def stop(self) -> None:
        """End the node."""
        self.node.machine.heal()
        self.node.machine.heal_kernel()
        if self.rack is not None:
            self.rack.channels.peers.close()
        self.node.stop()

    def play(self, told: str) -> Iterator[str]:
        """The lines of a story as it goes now."""
        before = self._look()
        for line in told.splitlines():
            if line.startswith(" "):
                continue
            yield line
            if line and line[0] not in "#-" and not line.startswith("on "):
                said = list(self._do(*line.split()))
                now = self._look()
                said += [f"{key}: {text}" for key, text in now.items() if before.get(key) != text]
                said += [f"- {key}" for key in before if key not in now]
                before = now
                yield from (f"    {readable(self.node, text)}" for text in said)

    def _look(self) -> dict[str, str]:
        return look(self.node, self.rack, {ref.uid: name for name, ref in self.refs.items()})

    def _do(self, command: str, *words: str) -> Iterator[str]:
        try:
            if around := self._surroundings().get(command):
                around(*words)
            else:
                yield from getattr(self, command.replace("-", "_"))(*words) or ()
        except Crash as crash:
            yield f"crash after {crash}"
        except DriverError as error:
            yield from self._refused(error, *words)
        said = [*self.node.complaints, *self.node.notes]
        yield from said[self._told :]
        self._told = len(said)

    def _refused(self, error: DriverError, name: str = "", *_: str) -> Iterator[str]:
        yield f"{type(error).__name__}: {error}"
        others = [ref for other, ref in self.refs.items() if other != name]
        # Whoever made the claim must not learn of those of others.
        assert not any(str(ref) in str(error) or ref.uid in str(error) for ref in others)
        if error.for_log:
            yield f"in the log: {error.for_log}"

    # Claims.

    def claim(self, name: str, *words: str, number: str = "") -> None:
        """Have a claim allocated these devices, perhaps anew."""
        options = dict(word.split("=", 1) for word in words if "=" in word)
        named = [word for word in words if "=" not in word and word not in ("admin", "mps")]
        devices = [self._device(word) for word in named if not word.startswith("channel")]
        more: Object = {"uid": f"uid-of-{name}{number}", "admin": "admin" in words}
        if found := _config(options, mps="mps" in words):
            more["config"] = found
        if devices and re.search(r"-(ts|mps)-", devices[0]):
            taken = {key: options[key] for key in ("shares", "memory") if key in options}
            self.refs[name] = self.node.claim_shares(name, *devices, consumed=taken, **more)
        else:
            self.refs[name] = self.node.claim_devices(name, *devices, **more)
        if self.rack is not None and len(devices) < len(named):
            self.rack.give(self.refs[name], named[-1].removeprefix("channel:"))

    def another(self, name: str, *words: str) -> None:
        """The claim was deleted, and one of its name is there; it stays known as the old one."""
        self.refs[f"old-{name}"] = self.refs[name]
        self.claim(name, *words, number="-2")

    def prepare(self, name: str, *words: str) -> Iterator[str]:
        """Have the kubelet prepare a claim, which is made first where devices are named."""
        if words:
            self.claim(name, *words)
        answer, before = self.node.prepare(self.refs[name]), self.answers.get(name)
        if self.rack is not None:
            answer += self.rack.prepare(self.refs[name])
        self.answers[name] = answer
        if before is not None:
            yield "the same answer" if answer == before else "another answer"

    def unprepare(self, name: str) -> Iterator[str]:
        """Have the kubelet unprepare it."""
        left = self.node.unprepare(self.refs[name])
        if self.rack is not None:
            assert self.rack.unprepare(self.refs[name]) is None
        return iter(()) if left is None else self._refused(left, name)

    def move(self, name: str, node: str) -> None:
        """Have it allocated from the pool of another node."""
        for result in self.node.api["team", name]["status"]["allocation"]["devices"]["results"]:
            result["pool"] = f"{node}/gpu.nvidia.com"

    def use(self, *names: str) -> None:
        """Have containers use the devices of these claims and no others."""
        ids = (one for name in names for device in self.answers[name] for one in device.cdi_device_ids)
        self.node.in_use = {one.partition("=")[2] for one in ids}

    def spec(self, name: str) -> Iterator[str]:
        """What the claim's CDI spec gives a container, but for the files of the driver."""
        held_by = self.node if self.rack is None else self.rack
        found = held_by.spec(self.refs[name])
        validate(found)
        common = found["containerEdits"]
        yield "for all: " + " ".join(edits_shown({**common, "mounts": ()}))
        if "mounts" in common:
            yield "and files of the driver"
        for device in found["devices"]:
            yield "; ".join(edits_shown(device["containerEdits"]))

    # The plugin.

    def restart(self) -> Iterator[str]:
        """End the plugin, with all that its process has open, and start it anew."""
        self.node.discovery.close()
        recovered = self.node.restart() if self.rack is None else self.rack.restart()
        for word in ("lost", "removed", "failed"):
            if found := getattr(recovered, word):
                yield f"{word} {found}"

    def steps(self) -> Iterator[str]:
        """Which steps there were since this was last asked."""
        yield ", ".join(self.node.steps) or "none"
        self.node.steps.clear()

    def reconcile(self) -> Iterator[str]:
        """Look for claims that are over."""
        gone = self.node.reconciler.run_once()
        if self.rack is not None:
            gone += self.rack.channels.reconciler.run_once()
        yield "let go of " + (", ".join(gone) or "nothing")

    def finish(self) -> Iterator[str]:
        """Try again to take back what could not be."""
        yield "took back all of " + (", ".join(self.node.reconciler.finish_releases()) or "nothing")

    def keep(self, what: str) -> None:
        """Let a keeper look: of ``shares``, ``fabric``, ``specs``, ``health`` or ``memory``."""
        node = self.node
        looks: dict[str, Callable[[], object]] = {
            "shares": node.sharing_reconciler.run_once,
            "fabric": node.fabric.run_once,
            "specs": node.reconciler.restore_specs,
            "health": node.health.run_once,
            "memory": node.memory.run_once,
        }
        looks[what]()

    def blocked(self) -> Iterator[str]:
        """What the controller is told."""
        state = self.node.watch.state()
        for one in state.blocked:
            yield f"{one.pci} {'all' if one.span is None else one.span.start}: {one.reason} {one.message}"
        for healed in state.healed:
            yield f"{healed.pci} was healed"

    def told_health(self) -> Iterator[str]:
        """What the kubelet hears of devices that are not healthy."""
        for device, told in self.node.told_health().items():
            if told.health.word != "Healthy":
                yield f"{device}: {told.health.word}, {told.health.message}"

    def status(self) -> Iterator[str]:
        """What the statuses of claims say of their devices."""
        healths = {(one.pool, one.device): one.health for one in self.node.told_health().values()}
        for claim in claim_statuses(self.node.journal.held(), Observed(self.node.kinds, healths=healths)):
            for device in claim.devices:
                ready = device.ready
                yield f"{device.device}: {ready.status} {ready.reason} {ready.message} {device.data or ''}"

    def reset(self, gpu: str) -> Iterator[str]:
        """Have an admin heal a GPU by a reset."""
        name = str(self.node.gpus[int(gpu)]) if gpu.isdigit() else gpu
        for one in self.node.healer.heal(HealRequest(name, reset=True)):
            yield f"{one.step} {' '.join(map(str, one.gpus))} {one.message}".rstrip()

    # The disk.

    def damage(self, what: str, name: str) -> None:
        """Have the ``entry`` or ``spec`` of a claim no more in one piece."""
        self._file(what, name).write_text("{")

    def remove(self, what: str, name: str) -> None:
        """Take it away."""
        self._file(what, name).unlink()

    def keep_spec(self, name: str) -> None:
        """Remember the spec of a claim, for ``put-spec``."""
        self._kept_spec = self._file("spec", name).read_bytes()

    def put_spec(self, name: str) -> None:
        """Have it back."""
        self._file("spec", name).write_bytes(self._kept_spec)

    def _file(self, what: str, name: str) -> Path:
        if what in ("fabric", "memory"):
            (found,) = (self.node.boot_files / what).glob(f"*{name}*")
            return found
        ref = self.refs[name]
        return self.node.entry_file(ref) if what == "entry" else self.node.spec_path(ref)

    # The surroundings.

    def admin_cuts(self, profile: str, start: str) -> None:
        """Have an admin make a partition of the first GPU."""
        number, size = {"1g.10gb": (ONE, 1), "3g.40gb": (THREE, 4)}[profile]
        self.node.cut_by_hand(number, int(start), size)

    def processes(self, where: str, *ids: str) -> None:
        """Have these processes use a GPU, or a claim's partition."""
        place = int(where) if where.isdigit() else self.node.partition_uuid(self.refs[where])
        self.node.machine.set_processes(place, tuple(map(int, ids)))

    def driver(self, how: str, version: str | None = None) -> None:
        """Have the NVIDIA driver ``gone`` or ``back``, or ``loaded`` anew; all that was set goes with it."""
        if how != "back":
            self.node.machine.driver_gone()
            self.node.driver_generation = ""
        if how != "gone":
            self.node.machine.driver_back(version)
            self.node.mps.running.clear()
            self._loads += 1
            self.node.driver_generation = f"load {self._loads}"

    def supervisor(self, how: str) -> None:
        """Have the MPS supervisor be ``silent`` or answer again, or have it refuse or block its next call."""
        self.node.mps.silent = how == "silent"
        errors = {
            "refuses": ClaimRefused("the daemon refused its limits", "ask for others"),
            "busy": ClaimBlocked("the daemon is busy", "wait"),
        }
        if how in errors:
            self.node.mps.failures.append(errors[how])

    def publish(self, device: str, memory: str) -> None:
        """Have the slices say how much memory of a device there is to share, in GiB."""
        self.node.published_memory[self._device(device)] = int(memory) << 30

    def publish_limits(self, how: str) -> None:
        """Have the slices say that memory is limited, or not, or have them ``unseen``."""
        publish(self.node, limits=how == "yes")
        if how == "unseen":
            self.node.published_attributes.clear()

    def manager(self, how: str, *words: str) -> None:
        """Have the fabric manager stop, start, start anew, fail calls, or somebody use it."""
        fabric = self.node.machine.fabric
        does: dict[str, Callable[[], object]] = {
            "stops": fabric.stop,
            "starts": lambda: fabric.start(keeps=True),
            "begins-anew": lambda: fabric.start(keeps=False),
            "fails": lambda: fabric.fail(words[0], *map(int, words[1:])),
            "heals": fabric.heal,
            "activates": lambda: fabric.manager().activate(int(words[0])),
        }
        does[how]()

    def _surroundings(self) -> dict[str, Callable[..., object]]:
        """What happens around the plugin, by the name of the command."""
        node, machine, numbers = self.node, self.node.machine, _numbers

        def sets(**values: object) -> None:
            for name, value in values.items():
                setattr(node, name, value)

        return {
            # NVML, and the kernel.
            "fail": lambda call, *options: machine.fail(call, **numbers(options)),
            "unsupported": lambda call, *options: machine.not_supported(call, **numbers(options)),
            "lies": lambda call, *options: machine.lie(call, **numbers(options)),
            "heal": machine.heal,
            "spoil": lambda kind, words, *options: machine.spoil_kernel(kind, words, **numbers(options)),
            "library": lambda how: machine.driver_gone() if how == "gone" else machine.driver_back(),
            "load-unknown": lambda: sets(driver_generation=""),
            "units": lambda mib: machine.count_memory(unit_bytes=int(mib) * MIB),
            "groups-silent": lambda: machine.count_memory(silent=True),
            "limits-lost": lambda: machine.lift_memory_limits(0),
            # GPUs and the machine.
            "lose": lambda gpu: machine.lose(int(gpu)),
            "restore": lambda gpu: machine.restore(int(gpu)),
            "taken-out": lambda gpu: self._function(gpu).unlink(),
            "other-model": lambda gpu: (self._function(gpu) / "device").write_text("0x20b7\n"),
            "reboot": node.reboot,
            "memory-lost": machine.reboot,
            # Admins.
            "admin-resets": lambda gpu: machine.reset(int(gpu)),
            "admin-sets": lambda gpu, mode: node.handle(int(gpu)).set_compute_mode(mode),
            "admin-mig": lambda gpu: node.handle(int(gpu)).set_mig_mode(True),
            "admin-persists": lambda gpu: node.handle(int(gpu)).set_persistence_mode(True),
            "admin-writes": lambda file, text: node.kernel.write(
                node.sysfs / "bus/pci/devices" / file, text, 1.0
            ),
            "enable": lambda gpu: node.virtual.enable(node.gpus[int(gpu)]),
            "functions-off": lambda gpu: turn_virtual_off(node.kernel, node.sysfs, node.gpus[int(gpu)]),
            # Kubernetes.
            "delete": lambda name: sets(api={key: one for key, one in node.api.items() if key[1] != name}),
            "unallocate": lambda name: node.api["team", name].update(status={}),
            "api-away": lambda: node.api_failures.append(ApiError("away")),
            "register": node.register,
            "kubelet-away": lambda: sets(listed_containers=ClaimBlocked("the kubelet is away")),
            # What the plugin has beside it.
            "crash": lambda *step: sets(crash_after=" ".join(step)),
            "clique": lambda clique="": sets(clique=clique or None),
            "imex": lambda why="": setattr(node.imex, "why_not", why),
            "hook-gone": lambda: sets(memory_hook=None),
            "block-aside": (node.boot_files / "journal" / "unreadable").touch,
            "nvidia-smi-fails": lambda: node.time_slices.failures.append(ClaimBlocked("it failed", "look")),
            "controller-leaves": lambda: node.controllers.left("controller"),
        }

    def controller_joins(self) -> None:
        """Have the controller of the node connect, which cannot let a GPU go."""
        self.node.controllers.joined("controller")
        self.node.controllers.answered("controller", 1, "a call of NVML hangs")

    # Containers with memory limits.

    def announce(self, name: str, *containers: str) -> None:
        """Have the kubelet list containers for the devices of a claim."""
        for held in self._held(name):
            self._limiting.announce(held.cdi_device, *containers)

    def run(self, name: str, container: str, request: str = "0") -> None:
        """Start a container with a device of a claim."""
        label = f"{container}-{self._limiting.made + 1}"
        answer = self.answers[name][int(request)].cdi_device_ids[0].partition("=")[2]
        made = self._limiting.container(answer, container)
        self.containers[label] = made
        self._limiting.start(made)

    def start(self, label: str) -> None:
        """Start it again, as a runtime does that was not answered."""
        self._limiting.start(self.containers[label])

    def run_in(self, label: str, name: str) -> None:
        """Give a container that is starting a device of another claim as well."""
        group = self.containers[label].cgroup
        self._limiting.run(self._held(name)[0].cdi_device, label.split("-", maxsplit=1)[0], cgroup=group)

    def end(self, label: str) -> None:
        """End it."""
        self._limiting.end(self.containers[label])

    def allocate(self, label: str, gib: str) -> None:
        """Have a program in it use so much of the first GPU."""
        self._limiting.cuda(self.containers[label]).allocate(int(gib) << 30)

    def used(self) -> Iterator[str]:
        """What containers have and use."""
        for one in self._limiting.memory.used():
            used = "?" if one.used_bytes is None else one.used_bytes // MIB
            yield f"{one.claim_uid} {one.pod}/{one.container}: {used} of {one.hard_bytes // MIB} MiB"

    def faults(self) -> Iterator[str]:
        """What is wrong with the limits of claims."""
        for (uid, device), words in self._limiting.memory.faults().items():
            yield f"{uid} {device}: {words}"

    @property
    def _limiting(self) -> MemoryNode:
        assert isinstance(self.node, MemoryNode)
        return self.node

    def _held(self, name: str) -> tuple[HeldDevice, ...]:
        return self.node.entry(self.refs[name]).devices

    def _function(self, gpu: int | str) -> Path:
        return self.node.sysfs / "bus/pci/devices" / str(self.node.gpus[int(gpu)])

    def _device(self, word: str) -> str:
        if word.startswith("!"):
            return word.removeprefix("!")
        if "+" in word and word.endswith(":vfio"):
            gpus = word.removesuffix(":vfio").split("+")
            return passthrough_device_name([self.node.gpus[int(gpu)] for gpu in gpus]) or ""
        first, *more = re.split(r"\+(?=\d)", word)
        if more:
            return "+".join(map(self._device, (first, *more)))
        gpu, _, rest = word.partition(":")
        if gpu.startswith("m"):
            slots = self.node.machine.spec.slots
            number = next(at for at, slot in enumerate(slots) if slot.module_id == int(gpu[1:]))
        else:
            number = int(gpu)
        part, _, form = rest.partition(":")
        profile, at, start = part.partition("@")
        if at:
            return self.node.partition(number, profile, int(start)) + (f"-{form}" if form else "")
        return self.node.whole(number) + (f"-{part}" if part else "")


def _config(options: dict[str, str], *, mps: bool) -> list[Object]:
    """The configurations that the words of a claim ask for."""
    found: list[Object] = []
    for source in ("FromClass", "FromClaim"):
        if interval := options.get("class-interval" if source == "FromClass" else "interval"):
            found += slicing(interval, source=source)
    if mps:
        names = {"percent": "defaultActiveThreadPercentage", "limit": "defaultPinnedDeviceMemoryLimit"}
        settings: dict[str, Any] = {key: options[word] for word, key in names.items() if word in options}
        if "percent" in options:
            settings[names["percent"]] = int(options["percent"])
        if "users" in options:
            settings["multiUser"] = options["users"] == "many"
        kind = options.get("kind", "GpuConfig")
        found += config({"strategy": "MPS", "mpsConfig": settings}, kind=kind)
    if backend := options.get("iommu"):
        found += with_config(backendPolicy=backend, enableAPIDevice=True)["config"]
    return found


def _numbers(options: tuple[str, ...]) -> dict[str, int]:
    return {key: int(number) for key, _, number in (option.partition("=") for option in options)}
