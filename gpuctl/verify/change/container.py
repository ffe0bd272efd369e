"""Starts the CUDA probe in a container that gets of a GPU only what a prepared CDI spec gives.

``containers_for`` returns real containers by runc, or plain processes on a fake machine.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from driver.nvml.api import Nvml
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.api.defaults import now
from envtest.embedded.node.cdi import ContainerView
from envtest.embedded.node.container_hooks import run_create_runtime
from envtest.embedded.node.containers import Container, PodSandbox, StartFailed
from fakegpu.machine.capabilities import VISIBLE_NODES
from fakegpu.machine.cgroups import FakeCgroups
from fakegpu.nvml.flag import pretended_cgroups
from gpuctl.cli.unread import Unread
from gpuctl.demo import watchdog
from gpuctl.verify.change import runc
from gpuctl.verify.change.program import ContainerFailed, StartedProgram
from gpuctl.verify.subject import Subject

CONTROL_GROUP = "FAKEGPU_CGROUP"
"""The variable with the pretended control group of a plain process, as NVML takes it."""

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_SANDBOX = PodSandbox("00000000-0000-0000-0000-000000000001", "gpu-dra-verify", "verify")


class RunningContainer(Protocol):
    """A container whose program was started, until ``end``."""

    def line(self, seconds: float) -> bytes:
        """The first line that its program prints, without the line break.

        Raises ContainerFailed if the program ends without one, or does not print one in this time; the error
        has the end of what runc and the program wrote to stderr. A second call returns the same line.
        """
        ...

    def end(self) -> None:
        """Close its stdin, kill what does not end by that, and remove everything that was made for it.

        Raises ContainerFailed if its program cannot be killed, as one that hangs in the kernel. A second call
        does nothing.
        """
        ...


class Containers(Protocol):
    """Starts containers."""

    @property
    def isolated(self) -> bool:
        """Whether a container lacks what its CDI devices do not give; else it is a plain process."""
        ...

    def start(self, cdi_dir: Path, device_ids: Sequence[str], words: Sequence[str]) -> RunningContainer:
        """Start a program with these CDI devices, ``vendor/class=name`` as the plugin answers to a prepare.

        The specs are those in the folder ``cdi_dir``. ``words`` are the command line, for example
        ``(sys.executable, "-m", "gpuctl.probe")``: Python and its modules are where they are outside. Its
        stdin stays open until ``end``. Raises NodeIncomplete as a runtime would: for an unknown device, or a
        path of the host that is missing; and ContainerFailed. What runc cannot do is raised by ``line``.
        """
        ...

    def close(self) -> None:
        """End all containers that still run; raises what ``RunningContainer.end`` raises."""
        ...


def containers_for(subject: Subject, folder: Path) -> Containers | str:
    """The containers of this node, or why none can be started there.

    ``folder`` is a folder of its own for them, which exists and is empty. Fake machines get plain processes,
    and need neither root nor runc.
    """
    if subject.is_fake:
        return PlainContainers(folder, subject.open_nvml())
    if os.geteuid() != 0:
        return "containers need root: run gpuctl verify as root"
    program = runc.find_program()
    if program is None:
        return (
            "neither runc nor crun was found: install one of them, or run gpuctl verify on the node itself, "
            "where the container runtime has one"
        )
    files = subject.seen.driver_files
    if isinstance(files, Unread):
        return f"the files of the NVIDIA driver cannot be kept from containers: {files.why}"
    root = subject.places.roots().current()
    return runc.RuncContainers(program, folder, runc.driver_paths(files, root), subject.places.host_root)


def clear(folder: Path) -> None:
    """End the containers that an earlier process left, by the ``folder`` that it gave to ``containers_for``.

    Their files are removed, and the folder too. If it is gone already, their processes and control groups may
    be there all the same. Raises ContainerFailed if a container cannot be ended.
    """
    folder = folder.absolute()
    left = runc.left_behind(folder)
    program = runc.find_program() if left else None
    if left and program is None:
        raise ContainerFailed(
            f"the containers {', '.join(left)} still run, and neither runc nor crun was found to end them",
            "run this again where the containers were started",
        )
    for container in left:
        runc.delete((str(program), "--root", str(folder / runc.STATE)), container)
    watchdog.clear(str(folder))
    runc.end_control_groups(runc.ids_of(folder))
    if folder.exists():
        raise ContainerFailed(
            f"a process of {folder} cannot be killed: it hangs in the kernel, or {folder} cannot be removed",
            "look for errors of the GPU with dmesg; such a process ends only with a reboot",
        )


class PlainContainers:
    """Plain processes of this machine, for fake GPUs.

    They have the variables of the CDI devices. FAKEGPU_VISIBLE_NODES has the device nodes, by which the fake
    CUDA and the fake nvidia-smi know their GPUs, and CUDA_MPS_PIPE_DIRECTORY the host's path of what CDI
    mounts there. If the machine pretends control groups, each has one. Gpu-memory-hook is played for it.
    This does not prove that a container sees no other GPU, nor that mounts, device nodes and other hooks are
    right: nothing is isolated.
    """

    isolated = False

    def __init__(self, folder: Path, nvml: Nvml) -> None:
        self._folder = folder.absolute()
        self._nvml = nvml
        self._started: list[_PlainContainer] = []

    def start(self, cdi_dir: Path, device_ids: Sequence[str], words: Sequence[str]) -> RunningContainer:
        """Start a process; see ``Containers``. ContainerFailed if gpu-memory-hook refuses it."""
        view = runc.resolved(cdi_dir, device_ids)
        variables = {**runc.environment(view), VISIBLE_NODES: ":".join(sorted(view.nodes))}
        pipes = view.mounts.get(variables.get(_PIPES, ""))
        if pipes is not None:
            variables[_PIPES] = pipes.host_path
        variables[watchdog.MARK] = str(self._folder)
        name = runc.new_id(self._folder)
        bundle = self._folder / name
        bundle.mkdir()
        groups = pretended_cgroups(self._nvml)
        try:
            if groups is not None:
                variables[CONTROL_GROUP] = groups.make(_group(name)).path
            _play_hooks(name, view)
            started = StartedProgram(words, variables, bundle / "stderr")
        except ContainerFailed:
            _remove(bundle, groups)
            raise
        container = _PlainContainer(started, bundle, groups)
        self._started.append(container)
        return container

    def close(self) -> None:
        """End all processes; raises ContainerFailed for one that cannot be ended."""
        for container in self._started:
            container.end()


def _group(name: str) -> str:
    return f"/{runc.ID_PREFIX.rstrip('-')}/{name}"


def _play_hooks(name: str, view: ContainerView) -> None:
    log = ContainerLog(threading.Condition())
    made = Container(name, "probe", 0, view, _group(name), now(), log)
    try:
        run_create_runtime(made, _SANDBOX, "")
    except StartFailed as error:
        raise ContainerFailed(str(error)) from error


def _remove(bundle: Path, groups: FakeCgroups | None) -> None:
    if groups is not None:
        groups.remove(_group(bundle.name))
    shutil.rmtree(bundle, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _PlainContainer:
    _started: StartedProgram
    _bundle: Path
    _groups: FakeCgroups | None

    def line(self, seconds: float) -> bytes:
        return self._started.line(seconds)

    def end(self) -> None:
        self._started.ask_to_end()
        self._started.kill()
        _remove(self._bundle, self._groups)
