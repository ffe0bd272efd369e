"""What a clause of the contract is, and how it asks each GPU and says what was wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from driver.nvml.api import (
    Code,
    DriverNotLoaded,
    GpuLost,
    NotSupported,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    SessionLost,
)

T = TypeVar("T")


class BrokenPromise(Exception):
    """NVML did not do what a clause promises; ``lines`` say what it did, one for each GPU."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class NothingToCheck(Exception):
    """The clause is about something that is not here; the only argument says what."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of NVML. ``test`` is called with an NVML that has no session, and only reads.

    It raises BrokenPromise, or NothingToCheck, or the NvmlError that a call ended with.
    """

    name: str
    promise: str
    test: Callable[[Nvml], None]


def clause(name: str, promise: str) -> Callable[[Callable[[Nvml], None]], Clause]:
    """Make a clause of the test below; the arguments are the fields of ``Clause``."""
    return lambda test: Clause(name, promise, test)


def gpu_clause(name: str, promise: str) -> Callable[[Callable[[NvmlDevice], object]], Clause]:
    """Make a clause of a question to each GPU; it has NothingToCheck if none could be asked."""
    return lambda question: Clause(name, promise, lambda nvml: check_each_gpu(nvml, question))


def expect(holds: bool, wrong: str) -> None:
    """Raise BrokenPromise with these words unless it holds."""
    if not holds:
        raise BrokenPromise(wrong)


def expect_failure(what: str, call: Callable[[], object], *expected: type[NvmlCallFailed] | Code) -> None:
    """Raise BrokenPromise unless the call fails with one of these errors or codes; ``what`` names it."""
    try:
        call()
    except NvmlCallFailed as error:
        if any(error.code == one if isinstance(one, Code) else isinstance(error, one) for one in expected):
            return
        raise BrokenPromise(f"{what} failed otherwise than it should: {error.what}") from error
    raise BrokenPromise(f"{what} succeeded, and should have failed")


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What GPUs answered to one question, by their names, and why others were passed over."""

    answers: Mapping[str, T]
    passed_over: tuple[str, ...]


def ask_gpus(nvml: Nvml, question: Callable[[NvmlDevice], T]) -> Asked[T]:
    """Open a session and ask each GPU; raises BrokenPromise with what was wrong at any of them.

    A GPU that is lost or that this process may not use is passed over, since it says nothing about NVML; so
    is one for which the question raises NothingToCheck.
    """
    nvml.init()
    answers: dict[str, T] = {}
    passed_over, wrong = [], []
    for index in range(nvml.device_count()):
        name = f"GPU {index}"
        try:
            device = nvml.device_by_index(index)
            name = str(device.pci())
            answers[name] = question(device)
        except (SessionLost, DriverNotLoaded):
            raise
        except NothingToCheck as error:
            passed_over.append(str(error))
        except BrokenPromise as error:
            wrong += [f"{name}: {line}" for line in error.lines]
        except NvmlCallFailed as error:
            if isinstance(error, GpuLost) or error.code == Code.NO_PERMISSION:
                passed_over.append(error.what)
            else:
                wrong.append(f"{name}: {error.what}")
    if wrong:
        raise BrokenPromise(*wrong)
    return Asked(answers, tuple(dict.fromkeys(passed_over)))


def check_each_gpu(nvml: Nvml, question: Callable[[NvmlDevice], object]) -> None:
    """Ask each GPU; raises NothingToCheck if none could be asked."""
    asked = ask_gpus(nvml, question)
    if not asked.answers:
        raise NothingToCheck("; ".join(asked.passed_over) or "NVML lists no GPU")


def answers_of(device: NvmlDevice, *methods: str) -> dict[str, object]:
    """The GPU's answers, without those that it does not support or does not give to this user."""
    answers: dict[str, object] = {}
    for method in methods:
        try:
            answers[method] = getattr(device, method)()
        except NotSupported:
            continue
        except NvmlCallFailed as error:
            if error.code != Code.NO_PERMISSION:
                raise
    return answers


def has_mig(device: NvmlDevice) -> bool:
    """Whether the GPU has a MIG mode."""
    return "mig_mode" in answers_of(device, "mig_mode")


def is_in_mig_mode(device: NvmlDevice) -> bool:
    """Whether the GPU is in MIG mode now."""
    try:
        return device.mig_mode().enabled
    except NotSupported:
        return False
