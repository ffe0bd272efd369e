"""Whatever happens, and in whatever order, a fake GPU gives memory as a plain count of its limits says."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakegpu.memory.cuda import ContextLost, CudaFailed
from tests.examples import examples
from tests.gpus import (
    NO_LIMIT_BYTES,
    Code,
    FakeCudaClient,
    FakeMachine,
    NoMemoryLimits,
    NvmlCallFailed,
    OutOfMemory,
)

ROOT = "/sys/fs/cgroup"
PATHS = ("/a", "/a/b", "/a/b/c", "/ab", "/d")
GPU_MIB = 23034 - 470
MIB = 2**20

paths = st.sampled_from(PATHS)
sizes = st.sampled_from([0, 1, 100, GPU_MIB // 2, GPU_MIB])
seldom = st.sampled_from([False, False, False, False, True])
"""Whether something happens that leaves little to look at."""


class MemorySequences(RuleBasedStateMachine):
    """One GPU; what it should say is counted in dictionaries, by paths alone."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.flag = f"l4-quad@{self.folder.name}/state.json"
        self.machine = FakeMachine.open(self.flag)
        self.groups = self.machine.pretend_cgroups(Path(self.folder.name, "cgroups"))
        self.nvml = self.machine.nvml()
        self.nvml.init()
        self.there: set[str] = set()
        self.limits: dict[str, tuple[int, int]] = {}
        self.clients: list[FakeCudaClient] = []
        self.has: dict[int, tuple[str, int]] = {}
        for path in PATHS:
            self.make(path)

    def teardown(self) -> None:
        """Leave no file behind."""
        self.folder.cleanup()

    def holder(self, path: str) -> str | None:
        """The limited group that holds a path: walk up until there is one."""
        while path:
            if path in self.limits:
                return path
            path = path.rpartition("/")[0]
        return None

    def used(self, holder: str) -> int:
        """What is charged to a limited group."""
        return sum(size for path, size in self.has.values() if self.holder(path) == holder)

    @rule(path=paths)
    def make(self, path: str) -> None:
        """A runtime makes a group, with those above it."""
        assert self.groups.make(path).path == ROOT + path
        self.there |= {one for one in PATHS if path == one or path.startswith(f"{one}/")}

    @rule(path=paths, happens=seldom)
    def remove(self, path: str, *, happens: bool) -> None:
        """A runtime removes a group, with those inside: limits and processes go with them."""
        if not happens:
            return
        self.groups.remove(path)
        gone = {one for one in PATHS if one == path or one.startswith(f"{path}/")}
        self.there -= gone
        self.limits = {one: limits for one, limits in self.limits.items() if one not in gone}
        self.has = {number: one for number, one in self.has.items() if one[0] not in gone}

    @rule(path=paths, one=sizes, other=sizes, lies=seldom)
    def limit(self, path: str, one: int, other: int, *, lies: bool) -> None:
        """Somebody sets limits, and NVML may lie about it."""
        soft, hard = sorted((one * MIB, other * MIB))
        if lies:
            self.machine.lie("set_memory_limits", times=1)
        try:
            self.nvml.device_by_index(0).set_memory_limits(ROOT + path, soft, hard)
        except NvmlCallFailed as error:
            assert error.code == Code.OPERATING_SYSTEM
            assert path not in self.there
        else:
            assert path in self.there
            if not lies:
                self.limits[path] = (soft, hard)
        self.machine.heal()

    @rule(path=paths)
    def clear(self, path: str) -> None:
        """Somebody clears limits."""
        if path in self.there:
            self.nvml.device_by_index(0).set_memory_limits(ROOT + path, 0, NO_LIMIT_BYTES)
            self.limits.pop(path, None)

    @rule(path=paths)
    def begin(self, path: str) -> None:
        """A process makes a CUDA context, if its group is there."""
        if path not in self.there:
            with pytest.raises(CudaFailed):
                self.machine.cuda(0, ROOT + path)
            return
        self.has[len(self.clients)] = (path, 0)
        self.clients.append(self.machine.cuda(0, ROOT + path))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), size=sizes)
    def allocate(self, data: st.DataObject, size: int) -> None:
        """A process wants more memory."""
        number = data.draw(st.integers(0, len(self.clients) - 1))
        if number not in self.has:
            with pytest.raises(ContextLost):
                self.clients[number].allocate(size * MIB)
            return
        path, now = self.has[number]
        holder, wanted = self.holder(path), size * MIB
        fits = sum(size for _, size in self.has.values()) + wanted <= GPU_MIB * MIB
        if holder is not None and self.used(holder) + wanted > self.limits[holder][1]:
            fits = False
        if fits:
            self.clients[number].allocate(wanted)
            self.has[number] = (path, now + wanted)
        else:
            with pytest.raises(OutOfMemory):
                self.clients[number].allocate(wanted)

    @precondition(lambda self: self.has)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """A process gives half back."""
        number = data.draw(st.sampled_from(sorted(self.has)))
        path, now = self.has[number]
        self.clients[number].free(now - now // 2)
        self.has[number] = (path, now // 2)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A process ends, perhaps once more."""
        number = data.draw(st.integers(0, len(self.clients) - 1))
        self.clients[number].end()
        self.has.pop(number, None)

    @rule(happens=seldom)
    def reload(self, *, happens: bool) -> None:
        """The driver is loaded anew: no limit and no context is left."""
        if happens:
            self.machine.driver_gone()
            self.machine.driver_back("620.10")
            self.nvml.init()
            self.limits.clear()
            self.has.clear()

    @precondition(lambda self: not self.has)
    @rule(happens=seldom)
    def reset(self, *, happens: bool) -> None:
        """The GPU is reset, which nobody uses."""
        if happens:
            self.machine.reset(0)
            self.limits.clear()

    @rule()
    def look_from_another_process(self) -> None:
        """Another process opens the same machine, and goes on with it."""
        self.machine = FakeMachine.open(self.flag)
        self.nvml = self.machine.nvml()
        self.nvml.init()

    @invariant()
    def nvml_and_clients_say_what_was_counted(self) -> None:
        device = self.nvml.device_by_index(0)
        for path in self.there:
            holder = self.holder(path)
            if holder is None:
                with pytest.raises(NoMemoryLimits):
                    device.memory_limits(ROOT + path)
            else:
                told = device.memory_limits(ROOT + path)
                assert (told.soft_bytes, told.hard_bytes) == self.limits[holder]
                assert told.used_bytes == self.used(holder)
        for number, client in enumerate(self.clients):
            assert client.allocated_bytes == self.has.get(number, ("", 0))[1]
        assert sum(size for _, size in self.has.values()) <= GPU_MIB * MIB


TestMemorySequences = MemorySequences.TestCase
TestMemorySequences.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
