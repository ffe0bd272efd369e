"""Asks a GPU everything that only reads, twice, and judges the answers: what fails, changes or is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from driver.hardware.call_effects import CONDITION, DECIDING, DESCRIBING
from driver.nvml.api import (
    GPU_CALLS,
    Code,
    DriverNotLoaded,
    GpuLost,
    NotFound,
    NotSupported,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    SessionLost,
    code_name,
)
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import require
from gpuctl.verify.calls import ask_each_gpu
from gpuctl.verify.subject import Subject

T = TypeVar("T")

NO_GPU = "NVML lists no GPU"

_CONSTANT = frozenset(
    {
        *("uuid", "minor", "index", "pci", "name", "brand", "architecture", "compute_capability"),
        *("memory_bytes", "addressing_mode", "numa_node", "module_id", "virtualization"),
        *("gpu_instance_profiles", "gpu_instance_placements"),
    }
)
"""The questions whose answers stay the same while the NVIDIA driver is loaded and nobody changes the GPU."""

_ASKED_OF_EVERY_GPU = (
    *("uuid", "minor", "index", "pci", "name", "brand", "architecture", "compute_capability"),
    *("memory_bytes", "memory_use", "addressing_mode", "numa_node", "module_id", "virtualization"),
    *("nvlinks", "fabric", "vgpu_types", "licensable_features", "compute_mode", "persistence_mode"),
    *("mig_mode", "mig_without_reset", "gpu_instance_profiles", "gpu_instances", "mig_devices"),
    *("mig_processes", "process_ids", "processes", "busy_processes", "utilisation"),
    *("power_milliwatts", "power_limit_milliwatts", "temperature_celsius"),
    *("recovery_action", "remapped_rows", "retired_pages_pending", "unrepairable_memory", "ecc_errors"),
    "fabric_health",
)

_MEANINGS: dict[str, str] = {**DECIDING, **DESCRIBING, **CONDITION}

_ENDS_THE_READING = (SessionLost, DriverNotLoaded, GpuLost)


@dataclass(frozen=True, slots=True)
class Question:
    """A method of NvmlDevice that only reads, with its arguments."""

    method: str
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        function = GPU_CALLS[self.method]
        inside = [str(one) for one in self.arguments]
        # NVML has functions that are asked for different things.
        if sum(other == function for other in GPU_CALLS.values()) > 1:
            inside.insert(0, self.method)
        return f"{function} ({' '.join(inside)})" if inside else function

    @property
    def meaning(self) -> str:
        """What the driver needs the answer for, in words; empty if it only shows it."""
        return _MEANINGS.get(self.method, "")

    @property
    def decides(self) -> bool:
        """Whether the driver cannot offer the GPU without an answer."""
        return self.method in DECIDING


Answer = object | NvmlCallFailed
"""What a call returned, or the error that it ended with."""

_State = Literal["answered", "unsupported", "refused", "gone", "failed"]

TroubleKind = Literal["fails", "failed once", "changes", "unknown value"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong with the answers to a question."""

    kind: TroubleKind
    question: Question
    words: str

    @property
    def is_serious(self) -> bool:
        """Whether the driver cannot work with such answers."""
        return self.kind == "changes" or (self.kind == "fails" and self.question.decides)


@dataclass(frozen=True, slots=True)
class GpuAnswers:
    """How a GPU answered in two readings; ``refused`` are the questions that this process may not ask."""

    answered: tuple[Question, ...]
    unsupported: tuple[Question, ...]
    refused: tuple[Question, ...]
    troubles: tuple[Trouble, ...]


def read_twice(device: NvmlDevice) -> GpuAnswers:
    """Ask all questions, and then again; raises GpuLost, SessionLost and DriverNotLoaded."""
    return judge(ask_everything(device), ask_everything(device))


def ask_everything(device: NvmlDevice) -> dict[Question, Answer]:
    """Ask all questions; raises GpuLost, SessionLost and DriverNotLoaded."""
    return dict(_reading(device))


def refused_questions(device: NvmlDevice) -> tuple[Question, ...]:
    """The questions that this process may not ask; raises what ``read_twice`` raises."""
    return tuple(question for question, answer in _reading(device) if _state(question, answer) == "refused")


def judge(first: dict[Question, Answer], second: dict[Question, Answer]) -> GpuAnswers:
    """Compare two readings of a GPU. A question that only one of them has is not compared."""
    troubles = []
    for question, one in first.items():
        trouble = _trouble(question, one, second.get(question, one))
        if trouble is not None:
            troubles.append(trouble)
    states = {question: _state(question, answer) for question, answer in (second | first).items()}
    # How busy a partition is follows from two samples, so it is answered only the second time.
    states |= {question: "answered" for question, answer in second.items() if _is_answer(answer)}
    return GpuAnswers(
        answered=tuple(one for one, state in states.items() if state == "answered"),
        unsupported=tuple(one for one, state in states.items() if state == "unsupported"),
        refused=tuple(one for one, state in states.items() if state == "refused"),
        troubles=tuple(troubles),
    )


def _reading(device: NvmlDevice) -> Iterator[tuple[Question, Answer]]:
    """All questions with their answers; those about profiles and instances follow from the answers before."""
    answers: dict[str, Answer] = {}
    for method in _ASKED_OF_EVERY_GPU:
        answers[method] = _ask(device, Question(method))
        yield Question(method), answers[method]
    for question in _further_questions(answers):
        yield question, _ask(device, question)


def _further_questions(answers: dict[str, Answer]) -> Iterator[Question]:
    """The questions about each profile, instance and MIG device."""
    for profile in _listed(answers["gpu_instance_profiles"]):
        yield Question("gpu_instance_placements", (profile.id,))
    for instance in _listed(answers["gpu_instances"]):
        for method in ("compute_instance_profiles", "compute_instances", "partition_utilisation"):
            yield Question(method, (instance.id,))
    for mig in _listed(answers["mig_devices"]):
        yield Question("partition_memory_use", (mig.gpu_instance_id, mig.compute_instance_id))


def _listed(answer: Answer) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else ()


def _ask(device: NvmlDevice, question: Question) -> Answer:
    try:
        answer: Answer = getattr(device, question.method)(*question.arguments)
    except _ENDS_THE_READING:
        raise
    except NvmlCallFailed as error:
        return error
    return answer


def _is_answer(answer: Answer) -> bool:
    return not isinstance(answer, NvmlCallFailed)


def _state(
    question: Question, answer: Answer
) -> Literal["answered", "unsupported", "refused", "gone", "failed"]:
    if not isinstance(answer, NvmlCallFailed):
        return "answered"
    if isinstance(answer, NotSupported):
        return "unsupported"
    if answer.code == Code.NO_PERMISSION:
        return "refused"
    # Somebody may destroy an instance between two questions.
    if isinstance(answer, NotFound) and question.arguments:
        return "gone"
    return "failed"


def _trouble(question: Question, first: Answer, second: Answer) -> Trouble | None:
    """What is wrong with two answers to a question; None if nothing is."""
    states = _state(question, first), _state(question, second)
    if states == ("failed", "failed"):
        return Trouble("fails", question, _failure(first))
    if states[0] == "failed":
        return Trouble("failed once", question, f"{_failure(first)}, and was answered only the second time")
    if states[1] == "failed":
        return Trouble("failed once", question, f"{_failure(second)} the second time")
    if question.method in _CONSTANT and _shown(first) != _shown(second):
        return Trouble("changes", question, f"{question} answered {_shown(first)}, and then {_shown(second)}")
    if first is None:
        return Trouble("unknown value", question, f"{question} has a value that this version does not know")
    return None


def _failure(answer: Answer) -> str:
    return answer.what if isinstance(answer, NvmlCallFailed) else ""


def _shown(answer: Answer) -> str:
    """An answer in words, with which answers are compared as well."""
    return code_name(answer.code) if isinstance(answer, NvmlCallFailed) else str(answer)


def ask_for_check(
    subject: Subject, ask: Callable[[Nvml, NvmlDevice], T], deadline_seconds: float
) -> dict[PciAddress, T | NvmlCallFailed]:
    """Ask each GPU (gpuctl.verify.calls); the running check is skipped without a GPU or a session."""
    pcis = [gpu.pci for gpu in subject.gpus]
    if not pcis:
        require(Unread(NO_GPU))
    try:
        return ask_each_gpu(subject.open_nvml, pcis, ask, deadline_seconds)
    except NvmlCallFailed as error:
        return require(Unread(error.what))


def lines_by_gpu(words: Mapping[PciAddress, str], gpus: int) -> list[str]:
    """What GPUs say, in a line for all that say the same; ``gpus`` is how many there are altogether."""
    same: dict[str, list[str]] = {}
    for pci, text in words.items():
        same.setdefault(text, []).append(str(pci))
    if len(same) == 1 and len(words) == gpus > 1:
        return [f"each GPU: {text}" for text in same]
    return [f"{', '.join(pcis)}: {text}" for text, pcis in same.items()]
