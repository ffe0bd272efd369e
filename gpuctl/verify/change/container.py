"""Starts the CUDA probe in a container that gets of a GPU only what a prepared CDI spec gives.

``containers_for`` returns real containers by runc, or plain processes on a fake machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpuctl.verify.subject import Subject

ID_PREFIX = "gpu-dra-verify-"
"""The beginning of the ids of all containers, by which a later process knows them."""


class RunningContainer(Protocol):
    """A container whose program was started, until ``end``."""

    def line(self, seconds: float) -> bytes:
        """The first line that its program prints, without the line break.

        Raises DriverError if the program ends without one, or does not print one in this time; the error has
        the end of what runc and the program wrote to stderr. A second call returns the same line.
        """
        ...

    def end(self) -> None:
        """Close its stdin, kill what still runs in it, and remove everything that was made for it.

        Raises DriverError if its program cannot be killed, as one that hangs in the kernel. A second call
        does nothing.
        """
        ...


class Containers(Protocol):
    """Starts containers."""

    isolated: bool
    """Whether a container lacks what its CDI devices do not give; else it is a plain process."""

    def start(self, cdi_dir: Path, device_ids: Sequence[str], words: Sequence[str]) -> RunningContainer:
        """Start a program with these CDI devices, ``vendor/class=name`` as the plugin answers to a prepare.

        The specs are those in the folder ``cdi_dir``. ``words`` are the command line, for example
        ``(sys.executable, "-m", "gpuctl.probe")``: Python and its modules are where they are outside. Its
        stdin stays open until ``end``. Raises NodeIncomplete as a runtime would: for an unknown device, or a
        path of the host that is missing. What fails later is raised by ``line``.
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
    raise NotImplementedError


def clear(folder: Path) -> None:
    """End the containers that an earlier process left, by the ``folder`` that it gave to ``containers_for``.

    Their files are removed, and the folder too. A folder that does not exist is left. Raises DriverError if
    a container cannot be ended.
    """
    raise NotImplementedError
