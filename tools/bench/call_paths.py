"""Counts the files that a claim and a reading of GPUs pass through, and how often they change rooms.

``python -m tools.bench.call_paths``, run in the root of a checkout, measures two things on the tests' fake
node: how a node prepares its second whole GPU, and the first reading of three GPUs until their slices are
laid out. It prints the files entered, and how often the next function lies in another room. The API server,
the kubelet and NVML are fakes, which are not counted.

``--tree`` measures another checkout, down to 8b64fd5, where it gives 59 files and 165 changes for the first,
and 48 and 212 for the second. So that figures can be compared, a room is what was a room then. The second
counts returns, too, as was done then.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

_ROOMS = """
proto kubernetes_rules driver/errors driver/event_reasons driver/process driver/kube driver/roots driver/nvml
driver/fabric driver/hardware driver/devices driver/health driver/kinds driver/policy driver/claims
driver/slices controller controller/intervals controller/plugin controller/health controller/observe
controller/publish controller/webhook kubeletplugin kubeletplugin/wire kubeletplugin/journal
kubeletplugin/host kubeletplugin/cdi kubeletplugin/vfio kubeletplugin/kinds kubeletplugin/sharing
kubeletplugin/fabric kubeletplugin/memory kubeletplugin/use kubeletplugin/metadata kubeletplugin/claims
kubeletplugin/predecessor kubeletplugin/reports
kubeletplugin/healing kubeletplugin/kubelet kubeletplugin/mps
"""
ROOMS = frozenset(_ROOMS.split())
"""The rooms at 8b64fd5: folders, and some modules."""

MOVED = {
    "kubeletplugin/claims/journal": "kubeletplugin/journal",
    "kubeletplugin/claims/cdi": "kubeletplugin/cdi",
    "kubeletplugin/claims/metadata": "kubeletplugin/metadata",
    "kubeletplugin/devices/kinds": "kubeletplugin/kinds",
    "kubeletplugin/devices/host": "kubeletplugin/host",
    "kubeletplugin/devices/vfio": "kubeletplugin/vfio",
    "kubeletplugin/devices/fabric": "kubeletplugin/fabric",
    "kubeletplugin/devices": "kubeletplugin",
    "kubeletplugin/sharing/mps": "kubeletplugin/mps",
    "kubeletplugin/sharing/memory": "kubeletplugin/memory",
    "kubeletplugin/reports/use": "kubeletplugin/use",
    "kubeletplugin/reports/healing": "kubeletplugin/healing",
    "kubeletplugin/kubelet/wire": "kubeletplugin/wire",
    "kubeletplugin/migration": "kubeletplugin/predecessor",
}
"""Where rooms lie now that were elsewhere then; the first that fits counts."""

COUNTED = ("proto/", "kubernetes_rules/", "driver/", "controller/", "kubeletplugin/")


def room_of(file: str) -> str:
    """The innermost room around a file, by its path from the root."""
    path = file.removesuffix(".py")
    for now, then in MOVED.items():
        if f"{path}/".startswith(f"{now}/"):
            path = then + path.removeprefix(now)
            break
    while path not in ROOMS:
        path = path.rpartition("/")[0]
    return path


@dataclass
class CallPath:
    """The files whose functions were called, and how often the next one was in another room."""

    files: set[str] = field(default_factory=set)
    changes: int = 0
    last_room: str = ""


class Profile:
    """Follows the calls of this thread, and of those that begin while it is installed."""

    def __init__(self, root: Path) -> None:
        self._prefix = f"{root}/"
        self._path = CallPath()
        self._events: tuple[str, ...] = ()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Count one call or return; a comprehension is a part of its function."""
        code = frame.f_code
        if event not in self._events or code.co_name.startswith("<"):
            return
        file = code.co_filename.removeprefix(self._prefix)
        if not file.startswith(COUNTED):
            return
        path, room = self._path, room_of(file)
        path.files.add(file)
        path.changes += room != path.last_room
        path.last_room = room

    def of(self, work: Callable[[], object], *events: str) -> CallPath:
        """The path of a piece of work, by these events."""
        self._path, self._events = CallPath(), events
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
            self._events = ()
        return self._path


def prepare_path(profile: Profile, folder: Path) -> CallPath:
    """How the second whole GPU of a node is prepared."""
    node = import_module("tests.kubeletplugin.fake_node").FakeNode(folder, "a30-quad")
    try:
        node.prepare(node.claim("first", 0))
        claim = node.claim("second", 1)
        return profile.of(lambda: node.prepare(claim), "call")
    finally:
        node.stop()


def reading_path(profile: Profile) -> CallPath:
    """How three GPUs are read for the first time, until the slices that offer them are laid out."""
    machine = _one_of("fakegpu.machine.fake_machine", "fakegpu.machine").FakeMachine.open("l4-quad")
    for pci in list(machine.state.gpus)[3:]:
        del machine.state.gpus[pci]
    guard = import_module("tests.controller.timeless_guard").TimelessGuard()
    discovery = import_module("driver.hardware.inventory").Discovery(machine.nvml(), Path("/no-sysfs"), guard)
    seen: list[tuple[Any, ...]] = []
    observer = import_module("controller.observe.observer").Observer(
        discovery,
        lambda: None,
        _one_of("driver.process.metrics.registry", "driver.process.metrics").Metrics(),
        import_module("tests.controller.heard_events").HeardEvents(),
        lambda *found: seen.append(found),
    )
    reports = getattr(observer, "plugin_reports", None) or observer.plugin_tells  # its name at 8b64fd5
    reports(import_module("driver.devices.node_state").NodeState())
    next_offers = _next_offers()
    lay_out = import_module("driver.slices.specs").lay_out

    def work() -> None:
        observer.check()
        offers = next_offers(*seen[-1][:2])
        lay_out(offers.devices, counter_sets=offers.counter_sets, pool="node/gpu.nvidia.com", node="node")

    return profile.of(work, "call", "return")


def _next_offers() -> Callable[[Any, frozenset[str]], Any]:
    """What to publish of what is wanted and held, where nothing is stored yet."""
    changeover = import_module("controller.publish.changeover")
    backoff = import_module("driver.kube.backoff").Backoff(0.0, 0.0)
    step = changeover.Changeover("node/gpu.nvidia.com", frozenset, 0.0, backoff)
    if hasattr(step, "next_offers"):  # at 8b64fd5 it remembered by itself
        return lambda wanted, held: step.next_offers(wanted, held, [])[0]
    return lambda wanted, held: step.next_known(changeover.Known(), changeover.Seen(wanted, held, [])).offers


def _one_of(*modules: str) -> Any:
    """The first of the modules that has what it is named for; at 8b64fd5 some were packages."""
    for name in modules:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {', '.join(modules)}")


def measured(root: Path) -> dict[str, CallPath]:
    """Both paths in the checkout that is imported from ``root``."""
    profile = Profile(root)
    threading.setprofile(profile)  # NVML is called by threads of their own, which begin with the fake node
    try:
        with tempfile.TemporaryDirectory() as folder:
            return {
                "prepare a whole GPU": prepare_path(profile, Path(folder)),
                "read three GPUs": reading_path(profile),
            }
    finally:
        threading.setprofile(None)


def main() -> int:
    """Print both paths; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count the files that a claim and a reading pass through.")
    parser.add_argument("--tree", type=Path, help="measure this checkout instead")
    tree: Path | None = parser.parse_args().tree
    if tree is not None:
        environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
        return subprocess.run(
            [sys.executable, "-P", __file__], cwd=tree, env=environment, check=False
        ).returncode
    for name, path in measured(Path.cwd()).items():
        print(f"{name}: {len(path.files)} files, {path.changes} changes of room")
        for file in sorted(path.files):
            print(f"  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
