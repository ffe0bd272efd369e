"""Random sequences of what users, programs, the runtime, the kubelet, NVML and crashes do to shares of GPUs.

After each of them the world looks at the fake GPU itself, not at what the plugin says.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from fakegpu.machine.cgroups import without_dead_groups
from fakegpu.memory.cuda import CudaFailed
from fakegpu.memory.state import CudaClient, GpuMemory, GroupLimits
from tests.gpus import Cgroup, Code, DriverError, FakeCudaClient, OutOfMemory
from tests.kubeletplugin.fake_node import Crash
from tests.kubeletplugin.sharing.memory.memory_node import GIB, L4_BYTES, Container, MemoryNode
from tests.plugin import Parts

_GPUS = 2
_MOST_RUNNING = 12
_STEPS = ("memory lowered", "memory noted", "memory limited")
_NAMES = ("a", "b", "c", "init")


@dataclass(slots=True, eq=False)
class Claim:
    """A claim with one share of a GPU."""

    uid: str
    gpu: int
    device: str
    limit_bytes: int


@dataclass(slots=True, eq=False)
class Running:
    """A container whose hooks said yes, the claims that it has, and its programs."""

    container: Container
    claims: list[Claim]
    programs: list[tuple[int, FakeCudaClient]] = field(default_factory=list)


class HostileWorld:
    """One node, and everybody on it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - the same sequence again for a seed
        self.node = MemoryNode(folder)
        self.node.driver_generation = "1"
        self.claims: list[Claim] = []
        self.running: list[Running] = []
        self.other: Parts | None = None
        self.told: list[str] = []
        self.refused = self.started = self.denied = self.crashed = 0
        self._next = 0
        self._deeds: tuple[tuple[int, Callable[[], None]], ...] = (
            (6, self.prepare),
            (3, self.unprepare),
            (16, self.start),
            (6, self.restart_container),
            (7, self.end),
            (22, self.take_all),
            (6, self.take_some),
            (8, self.give_back),
            (6, self.keeper_passes),
            (2, self.restart_plugin),
            (2, self.another_instance),
            (6, self.nvml_is_at_fault),
            (3, self.nvml_is_well),
            (1, self.reload_driver),
        )

    def go(self, deeds: int) -> None:
        """Do so many things, and look after each."""
        weights = [weight for weight, _ in self._deeds]
        for _ in range(deeds):
            _, deed = self.random.choices(self._deeds, weights)[0]
            self.told.append(deed.__name__)
            deed()
            self.look()

    def prepare(self) -> None:
        """A claim is allocated, as the scheduler does: all limits together fit."""
        gpu = self.random.randrange(_GPUS)
        free_bytes = L4_BYTES - sum(one.limit_bytes for one in self.claims if one.gpu == gpu)
        limit_bytes = self.random.choice((1, 2, 3, 5, 8)) * GIB
        if limit_bytes > free_bytes:
            return
        self._next += 1
        uid = f"claim-{self._next}"
        device = self.node.share(uid, limit_bytes, gpu=gpu, mps=self.random.random() < 0.3)
        self.claims.append(Claim(uid, gpu, device, limit_bytes))
        if self.random.random() < 0.5:
            self.node.announce(device, *self.random.sample(_NAMES[:3], self.random.randint(1, 3)))

    def unprepare(self) -> None:
        """A claim without containers is given back, or rarely one that has some yet."""
        idle = [one for one in self.claims if not any(one in each.claims for each in self.running)]
        if self.random.random() < 0.05:
            idle = self.claims
        if not idle:
            return
        claim = self.random.choice(idle)
        entry = self.node.entry(claim)
        self.node.journal.put(replace(entry, state="released", devices=()))
        self.claims.remove(claim)
        try:
            with self.may_crash():
                self.instance().memory.forget(claim.uid)
        finally:
            for one in [one for one in self.running if claim in one.claims]:
                self._end(one)

    def start(self) -> None:
        """A container of one claim, or of two, gets its hooks run; sometimes a hook asks once more."""
        if len(self.running) >= _MOST_RUNNING:
            self.end()
        if not self.claims:
            return
        claims = self.random.sample(self.claims, min(len(self.claims), self.random.choice((1, 1, 1, 2))))
        self._start(claims, self.random.choice(_NAMES), self.random.choice(("pod", "other")))

    def _start(self, claims: list[Claim], name: str, pod: str) -> None:
        container = self.node.container(claims[0].device, name, pod=pod)
        for claim in claims:
            one = self.node.container(claim.device, name, pod=pod, cgroup=container.cgroup)
            if not self._asks(one):
                self.node.end(container)
                return
        self.started += 1
        self.running.append(Running(container, claims))
        self.take_all()

    def _asks(self, container: Container) -> bool:
        """Whether an instance said yes to a hook, perhaps after one that ended."""
        for _ in range(2):
            with self.may_crash():
                try:
                    self.instance().memory.start(container.start)
                except DriverError:
                    self.refused += 1
                    return False
                return True
        return False

    def restart_container(self) -> None:
        """A container begins again; at times its old group is still there."""
        if not self.running:
            return
        old = self.random.choice(self.running)
        lingers = self.random.random() < 0.2
        if not lingers:
            self._end(old)
        claims = [claim for claim in old.claims if claim in self.claims]
        if claims:
            self._start(claims, old.container.start.container, old.container.start.pod)
        if lingers and old in self.running:
            self._end(old)

    def end(self) -> None:
        """A container ends, and the runtime removes its group."""
        if self.running:
            self._end(self.random.choice(self.running))

    def _end(self, one: Running) -> None:
        self.node.end(one.container)
        self.running.remove(one)

    def take_all(self) -> None:
        """A program takes as much as it can get."""
        found = self._program()
        if found is None:
            return
        one, gpu, program = found
        memory = self._gpu(gpu)
        limit = memory.limits_of(one.container.cgroup.path)
        left_bytes = limit.hard_bytes - memory.used_bytes(limit) if limit else L4_BYTES
        if left_bytes > 0:
            self._allocate(program, left_bytes)
        self._allocate(program, 1)

    def take_some(self) -> None:
        """A program takes some memory."""
        if (found := self._program()) is not None:
            self._allocate(found[2], self.random.randint(1, 4 * GIB))

    def give_back(self) -> None:
        """A program frees memory, or ends."""
        if (found := self._program()) is None:
            return
        one, gpu, program = found
        if self.random.random() < 0.4:
            program.end()
            one.programs.remove((gpu, program))
        else:
            program.free(self.random.randint(0, program.allocated_bytes))

    def keeper_passes(self) -> None:
        """The plugin looks after its limits."""
        with self.may_crash():
            self.instance().memory.run_once()

    def restart_plugin(self) -> None:
        """The plugin ends and begins anew."""
        self.node.begin_again()

    def another_instance(self) -> None:
        """A second instance comes, or goes."""
        if self.other is None:
            self.other = self.node.instance()
        else:
            self.other.peers.close()
            self.other = None

    def nvml_is_at_fault(self) -> None:
        """NVML fails, says yes and does nothing, or does it and says no."""
        call = self.random.choice(("set_memory_limits", "memory_limits", "memory_bytes"))
        times = self.random.randint(1, 3)
        kind = self.random.randrange(3)
        if kind == 0:
            self.node.machine.fail(call, self.random.randrange(_GPUS), Code.UNKNOWN, times)
        elif kind == 1:
            self.node.machine.lie("set_memory_limits", self.random.randrange(_GPUS), times)
        else:
            self.node.machine.fail_after(
                "set_memory_limits", self.random.randrange(_GPUS), Code.UNKNOWN, times
            )

    def nvml_is_well(self) -> None:
        """The faults end."""
        self.node.machine.heal()

    def reload_driver(self) -> None:
        """The NVIDIA driver is loaded anew: limits and contexts are gone, and claims are prepared anew."""
        node = self.node
        node.machine.heal()
        node.machine.driver_gone()
        node.machine.driver_back()
        node.driver_generation = str(int(node.driver_generation) + 1)
        for one in self.running:
            one.programs.clear()
        for claim in self.claims:
            entry = node.entry(claim)
            node.journal.put(replace(entry, driver_generation=node.driver_generation))
        memory = self.instance().memory
        memory.check_driver()
        assert memory.wanted.is_set() or not node.files()
        with self.may_crash(meddled=False):  # nobody is held to anything before it has ended
            memory.run_once()
        self.node.memory.run_once()

    def instance(self) -> Parts | MemoryNode:
        """Either of the instances that run."""
        return self.other if self.other is not None and self.random.random() < 0.5 else self.node

    @contextmanager
    def may_crash(self, *, meddled: bool = True) -> Iterator[None]:
        """The plugin may end after any step; programs allocate between any two of its calls."""
        if self.random.random() < 0.15:
            self.node.crash_after = self.random.choice(_STEPS)
        self.node.meddle = self._meddle if meddled and self.random.random() < 0.4 else lambda: None
        try:
            yield
        except Crash:
            self.crashed += 1
            self.node.crash_after = None
            self.node.meddle = lambda: None
            self.node.begin_again()
        finally:
            self.node.crash_after = None
            self.node.meddle = lambda: None

    def _meddle(self) -> None:
        self.take_all()
        self._look_at_memory()

    def _program(self) -> tuple[Running, int, FakeCudaClient] | None:
        """A program of some container, perhaps a new one; None where there is no container."""
        if not self.running:
            return None
        one = self.random.choice(self.running)
        if one.programs and self.random.random() < 0.7:
            return one, *self.random.choice(one.programs)
        gpu = self.random.choice(one.claims).gpu
        try:
            program = self.node.cuda(one.container, gpu)
        except CudaFailed:
            return None
        one.programs.append((gpu, program))
        return one, gpu, program

    def _allocate(self, program: FakeCudaClient, amount_bytes: int) -> bool:
        try:
            program.allocate(amount_bytes)
        except OutOfMemory as refused:
            assert "are free" not in str(refused), f"its limit would have let it have that: {refused}"
            self.denied += 1
            return False
        except CudaFailed:
            return False
        return True

    def look(self) -> None:
        """Assert that nobody has, or may have, more than it is to have."""
        self._look_at_memory()
        for one in self.running:
            for gpu in {claim.gpu for claim in one.claims if claim in self.claims}:
                held = [limit for limit in self._gpu(gpu).limits if _group(limit) == one.container.cgroup]
                assert held, f"a container runs without a limit: {self.told[-10:]}"

    def _look_at_memory(self) -> None:
        for gpu in range(_GPUS):
            memory = self._gpu(gpu)
            assert sum(limit.hard_bytes for limit in memory.limits) <= L4_BYTES, self.told[-10:]
            for claims in self._together(gpu):
                most_bytes = sum(claim.limit_bytes for claim in claims)
                groups = {one.container.cgroup for one in self.running if claims & set(one.claims)}
                hard_bytes = sum(one.hard_bytes for one in memory.limits if _group(one) in groups)
                has_bytes = sum(one.allocated_bytes for one in memory.clients if _group(one) in groups)
                assert hard_bytes <= most_bytes, (hard_bytes, most_bytes, self.told[-10:])
                assert has_bytes <= most_bytes, (has_bytes, most_bytes, self.told[-10:])

    def _together(self, gpu: int) -> list[set[Claim]]:
        """The claims on a GPU, those together that one container has: it has one limit for them."""
        found: list[set[Claim]] = []
        for claim in self.claims:
            if claim.gpu == gpu:
                joined = {claim}
                for one in self.running:
                    if claim in one.claims:
                        joined |= {other for other in one.claims if other.gpu == gpu}
                for other in [known for known in found if known & joined]:
                    joined |= other
                    found.remove(other)
                found.append(joined)
        return found

    def _gpu(self, gpu: int) -> GpuMemory:
        state = self.node.machine.state
        return without_dead_groups(state, state.gpus[self.node.gpus[gpu]]).memory

    def leave(self) -> None:
        """End everything; assert that nothing is left."""
        self.node.machine.heal()
        for one in list(self.running):
            self._end(one)
        for claim in list(self.claims):
            entry = self.node.entry(claim)
            self.node.journal.put(replace(entry, state="released", devices=()))
            self.node.memory.forget(claim.uid)
        self.node.memory.run_once()
        if self.other is not None:
            self.other.peers.close()
        assert self.node.files() == []
        assert all(not self._gpu(gpu).limits for gpu in range(_GPUS))
        assert self.node.memory.faults() == {}
        self.node.stop()


def _group(one: GroupLimits | CudaClient) -> Cgroup:
    return Cgroup(one.cgroup, one.inode)
