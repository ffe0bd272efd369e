"""Plans which pods to move so that more whole GPUs, or other large devices, are free. Pure.

A move ends a pod whose controller makes it again. Where the new pod goes is the scheduler's choice: for each
node that is open to it, the devices are computed that the scheduler would give it there, and whether the move
then helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.errors import ConfigError
from gpuctl.fleet.devices import attribute
from gpuctl.room.rooms import MOVABLE, Leaving, controller_of, devices_of, is_movable, leaving
from kubernetes_rules.allocator.allocate import AllocationFailed
from kubernetes_rules.pod_claims import controlling_pod
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.pod_fit import (
    Domain,
    added_up,
    closed,
    forbidden_domains,
    is_in,
    lacking,
    pod_amounts_on,
    unjudged,
)
from kubernetes_rules.preemption.room import Room, smallest_room, within, without
from kubernetes_rules.preemption.units import Unit, can_be_evicted

Object = dict[str, Any]

_MOST_FREE = 256
"""More free devices than this on a node are not counted: one that is shared without end has no number."""

_TARGET = "gpuctl-room"
"""The name of the class and of the claims that stand for what is to become free."""

_OURS = "device.driver == 'gpu.nvidia.com' && 'type' in device.attributes['gpu.nvidia.com']"


@dataclass(frozen=True, slots=True)
class Target:
    """The devices of which more are to be free: those of ``device_class``, which selects ``what``."""

    what: str
    device_class: Object

    def claim(self, number: int) -> Object:
        """A claim for one of them."""
        exactly = {
            "deviceClassName": self.device_class["metadata"]["name"],
            "allocationMode": "ExactCount",
            "count": 1,
        }
        name = f"{_TARGET}-{number}"
        return {
            "metadata": {"namespace": "", "name": name, "uid": name},
            "spec": {"devices": {"requests": [{"name": "target", "exactly": exactly}]}},
        }


@dataclass(frozen=True, slots=True)
class Landing:
    """The devices that the scheduler would give to a moved pod on a node."""

    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that is evicted and made again. ``uid`` is the pod's, ``controller`` its controller's UID.

    With ``fits`` the move helps; with ``spoils`` it does not, and the scheduler may choose these as well.
    """

    pod: Leaving
    uid: str
    controller: str
    devices: tuple[str, ...]
    fits: tuple[Landing, ...]
    spoils: tuple[Landing, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Moves after which ``gains``, devices of ``node``, are free together, beside ``free`` that are now."""

    node: str
    free: int
    gains: tuple[str, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Staying:
    """How many pods, or groups of pods, are not moved for one reason: ``without …``."""

    pods: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All that can be gained, and who is not moved."""

    what: str
    steps: tuple[Step, ...]
    staying: tuple[Staying, ...]

    @property
    def moves(self) -> int:
        """The number of moves."""
        return sum(len(step.moves) for step in self.steps)


def target_of(name: str | None, classes: Sequence[Object], slices: Sequence[Object]) -> Target:
    """What ``name`` means: a DeviceClass or a MIG profile; None means whole GPUs. Raises ConfigError."""
    if name is None:
        return Target("whole GPU", _class(f"{_OURS} && device.attributes['gpu.nvidia.com'].type == 'gpu'"))
    for one in classes:
        if one["metadata"]["name"] == name:
            return Target(f"device of class {name}", one)
    profiles = {
        str(profile)
        for one in slices
        for device in one["spec"].get("devices") or ()
        if (profile := attribute(device, "profile"))
    }
    if name not in profiles:
        known = ", ".join(sorted(profiles))
        raise ConfigError(
            f"there is neither a DeviceClass {name} nor a MIG profile {name} in the slices",
            f"name a class, or one of these profiles: {known}" if known else "name a class",
        )
    has = "'profile' in device.attributes['gpu.nvidia.com']"
    same = f"device.attributes['gpu.nvidia.com'].profile == '{name}'"
    alone = "!device.allowMultipleAllocations"
    return Target(f"partition {name}", _class(f"{_OURS} && {alone} && {has} && {same}"))


def _class(expression: str) -> Object:
    return {"metadata": {"name": _TARGET}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def stays_because(unit: Unit) -> str | None:
    """Which pods are not moved as those of this unit: ``without …``; None if they can be."""
    if len(unit.pods) > 1 or unit.is_group:
        return "that have to end together with others"
    [pod] = unit.pods
    if not is_movable(pod):
        return f'without the annotation {MOVABLE}: "true"'
    owner = controller_of(pod)
    if owner is None or not can_be_evicted(unit):
        return "without a controller that makes them again"
    if owner["kind"] == "DaemonSet":
        return "of a DaemonSet, which makes them again on the same node"
    # A claim with a life of its own may still have its devices when the new pod comes.
    if any(controlling_pod(claim) is None for claim in unit.claims):
        return "with a claim that is not made for them alone"
    if cannot := unjudged(pod):
        return f"with something that these rules cannot judge: {', '.join(cannot)}"
    return None


def free_on(cluster: Cluster, target: Target, node: str) -> int:
    """How many such devices claims could get on a node together. Raises AllocationFailed."""
    return len(_Moves(cluster, target, ()).free(node))


def plan(
    cluster: Cluster,
    target: Target,
    budgets: Sequence[Object],
    only: str | None = None,
    most: int | None = None,
) -> Plan:
    """The moves that free most; ``only`` limits from which node, ``most`` the number of steps.

    The cluster knows the target's class, and cannot be used any more. Raises AllocationFailed for malformed
    objects, and TooCostly.
    """
    moves = _Moves(cluster, target, budgets)
    staying: Counter[str] = Counter()
    candidates: dict[str, list[Unit]] = {}
    for node, units in cluster.units.on_node.items():
        for unit in units:
            if not unit.claims or node not in cluster.nodes or only not in (None, node):
                continue
            why = stays_because(unit)
            if why is None:
                candidates.setdefault(node, []).append(unit)
            else:
                staying[why] += 1
    # The fewest moves first. What one step changes elsewhere is computed again when it is the turn of that.
    found = {node: moves.room(node, units) for node, units in candidates.items()}
    order = sorted((len(room.units), node) for node, room in found.items() if room is not None and room.units)
    steps: list[Step] = []
    for _, node in order:
        while most is None or len(steps) < most:
            step = moves.step(node, candidates[node])
            if step is None:
                break
            steps.append(step)
    return Plan(target.what, tuple(steps), tuple(Staying(pods, why) for why, pods in sorted(staying.items())))


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a new pod asks for; the ``key`` is the same for pods that ask for the same."""

    pod: Object
    claims: tuple[Object, ...]
    amounts: Mapping[str, int]
    domains: frozenset[Domain]
    key: str


@dataclass(frozen=True, slots=True)
class _Place:
    """What a new pod would get on a node, and whether as many targets are free as needed then."""

    landing: Landing
    allocations: tuple[Object, ...]
    helps: bool


class _Moves:
    """The cluster in the course of the moves: its allocator changes with each."""

    def __init__(self, cluster: Cluster, target: Target, budgets: Sequence[Object]) -> None:
        self._cluster = cluster
        self._allocator = cluster.allocator
        self._target = target
        self._budgets = budgets
        self._used: dict[str, Mapping[str, int]] = {}
        self._moved: list[Object] = []
        # What was found on a node stays valid until a pod comes or goes there.
        self._free: dict[str, int] = {}
        self._places: dict[str, dict[str, _Place | None]] = {}
        self._spreads = None in cluster.node_of_pool.values()

    def free(self, node: str) -> list[Object]:
        """Allocated claims for all such devices that are free on a node."""
        stored = self._cluster.nodes[node]
        taken: list[Object] = []
        try:
            while len(taken) < _MOST_FREE:
                claim = self._target.claim(len(taken))
                found = self._allocator.allocate(stored, [claim])
                if found is None:
                    break
                taken.append({**claim, "status": {"allocation": found[0]}})
                self._allocator.assume(taken[-1])
        finally:
            for claim in taken:
                self._allocator.release(claim)
        return taken

    def room(self, node: str, units: Sequence[Unit]) -> Room | None:
        """The units whose end lets one more such device be free than now; None if there are none."""
        kept = self.free(node)
        wanted = [self._target.claim(len(kept))]
        with within(self._allocator, kept):
            stored = self._cluster.nodes[node]
            return smallest_room(self._allocator, stored, wanted, units, self._cluster.budgets)

    def step(self, node: str, candidates: list[Unit]) -> Step | None:
        """Moves that free one more such device, which count as done then; None if there are none.

        Units that are moved, or that fit nowhere else, are removed from ``candidates``.
        """
        while (room := self.room(node, candidates)) is not None and room.units:
            free = self._free_now(node)
            done: list[tuple[Unit, Move]] = []
            stuck = None
            for n, unit in enumerate(room.units):
                move = self._move(unit, room.units[n:], node, free + 1)
                if move is None:
                    stuck = unit
                    break
                done.append((unit, move))
            if stuck is None:
                for unit in room.units:
                    candidates.remove(unit)
                gains = tuple(one for found in room.allocations for one in devices_of(found))
                return Step(node, free, gains, tuple(move for _, move in done))
            for unit, move in reversed(done):
                self._undo(unit, move)
            candidates.remove(stuck)
        return None

    def _move(self, unit: Unit, going: Sequence[Unit], source: str, needed: int) -> Move | None:
        """Where a unit could go so that ``needed`` are free on the source once all of ``going`` have gone.

        The unit goes to the first such place; None if there is none.
        """
        [pod] = unit.pods
        ask = self._ask(unit)
        known = self._places.setdefault(ask.key, {})
        fits: list[_Place] = []
        spoils: list[_Place] = []
        for node in self._cluster.nodes:
            if node == source:
                place = self._on_source(ask, unit, going, source, needed)
            else:
                if node not in known:
                    known[node] = self._elsewhere(ask, node)
                place = known[node]
            if place is not None:
                (fits if place.helps else spoils).append(place)
        if not fits:
            return None
        for claim in unit.claims:
            self._allocator.release(claim)
        for claim in _allocated(ask.claims, fits[0].allocations):
            self._allocator.assume(claim)
            self._moved.append(claim)
        self._count(fits[0].landing.node, pod, 1)
        self._count(source, pod, -1)
        return Move(
            leaving(pod, self._budgets, unit.priority),
            uid=str(pod["metadata"]["uid"]),
            controller=str((controller_of(pod) or {})["uid"]),
            devices=tuple(one for claim in unit.claims for one in _held(claim)),
            fits=tuple(one.landing for one in fits),
            spoils=tuple(one.landing for one in spoils),
        )

    def _undo(self, unit: Unit, move: Move) -> None:
        for _ in unit.claims:
            self._allocator.release(self._moved.pop())
        for claim in unit.claims:
            self._allocator.assume(claim)
        [pod] = unit.pods
        self._count(move.fits[0].node, pod, -1)
        self._count(move.pod.node, pod, 1)

    def _ask(self, unit: Unit) -> _Ask:
        [pod] = unit.pods
        spec, amounts = pod["spec"], pod_amounts_on(pod)
        domains = forbidden_domains(pod, self._cluster.repelling)
        deciding = [spec.get(name) for name in ("nodeSelector", "affinity", "tolerations")]
        specs = [claim["spec"] for claim in unit.claims]
        key = repr((specs, deciding, sorted(amounts.items()), sorted(domains)))
        return _Ask(dict(pod), tuple(map(_made_again, unit.claims)), amounts, domains, key)

    def _elsewhere(self, ask: _Ask, node: str) -> _Place | None:
        """The place on a node from which the pod does not come; it helps if nothing is lost there."""
        allocations = self._allocations(ask, node)
        if allocations is None:
            return None
        before = self._free_now(node)
        with within(self._allocator, _allocated(ask.claims, allocations)):
            helps = not before or len(self.free(node)) >= before
        return _Place(_landing(node, allocations), tuple(allocations), helps)

    def _on_source(
        self, ask: _Ask, unit: Unit, going: Sequence[Unit], source: str, needed: int
    ) -> _Place | None:
        """The place on the pod's own node.

        Most controllers make the new pod at once, while the old one still has its devices. A StatefulSet
        waits, and a pod without a grace period is gone before.
        """
        is_gone = (controller_of(ask.pod) or {}).get("kind") == "StatefulSet"
        is_gone = is_gone or ask.pod["spec"].get("terminationGracePeriodSeconds") == 0
        with without(self._allocator, unit.claims if is_gone else ()):
            allocations = self._allocations(ask, source)
        if allocations is None:
            return None
        freed = [claim for one in going for claim in one.claims]
        with within(self._allocator, _allocated(ask.claims, allocations)), without(self._allocator, freed):
            helps = len(self.free(source)) >= needed
        return _Place(_landing(source, allocations), tuple(allocations), helps)

    def _allocations(self, ask: _Ask, node: str) -> list[Object] | None:
        """What the scheduler would give to the claims on a node; None if the pod does not fit there."""
        stored = self._cluster.nodes[node]
        if closed(ask.pod, stored, ()) or is_in(stored, ask.domains):
            return None
        if lacking(ask.amounts, stored, self._used_on(node)):
            return None
        try:
            return self._allocator.allocate(stored, ask.claims)
        except AllocationFailed:
            return None  # the scheduler does not place a pod there either

    def _free_now(self, node: str) -> int:
        """How many such devices are free on a node between two moves."""
        if node not in self._free:
            self._free[node] = len(self.free(node))
        return self._free[node]

    def _used_on(self, node: str) -> Mapping[str, int]:
        return self._used.get(node) or self._cluster.used(node)

    def _count(self, node: str, pod: Mapping[str, Any], times: int) -> None:
        """The pod came to a node, or left it (-1)."""
        amounts = {name: amount * times for name, amount in pod_amounts_on(pod).items()}
        self._used[node] = added_up((self._used_on(node), amounts))
        if self._spreads:  # a pool that several nodes reach may have changed for all of them
            self._free.clear()
            self._places.clear()
        self._free.pop(node, None)
        for known in self._places.values():
            known.pop(node, None)


def _allocated(claims: Sequence[Object], allocations: Sequence[Object]) -> list[Object]:
    pairs = zip(claims, allocations, strict=True)
    return [{**claim, "status": {"allocation": allocation}} for claim, allocation in pairs]


def _landing(node: str, allocations: Iterable[Object]) -> Landing:
    return Landing(node, tuple(device for one in allocations for device in devices_of(one)))


def _made_again(claim: Mapping[str, Any]) -> Object:
    """The claim that is made for the new pod."""
    metadata = claim["metadata"]
    name, uid = f"{metadata['name']} again", f"{metadata['uid']} again"
    return {"metadata": {"namespace": metadata["namespace"], "name": name, "uid": uid}, "spec": claim["spec"]}


def _held(claim: Mapping[str, Any]) -> list[str]:
    return devices_of(claim["status"]["allocation"])
