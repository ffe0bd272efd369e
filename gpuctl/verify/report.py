"""The report of a verification: a document for scripts, and a table."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driver.hardware.gpu import Gpu
from gpuctl.cli.output import own_version
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Result
from gpuctl.gather.masking import masked_text
from gpuctl.verify.subject import Subject

_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.ASCII)
_LEAST_HOST_NAME = 3
"""A shorter name of a host, such as ``a``, is part of too many words to be looked for."""

_ASK = ": please send the report, as docs/gpuctl.md describes"
_FAKE = ", which is fake"


@dataclass(frozen=True, slots=True)
class Model:
    """GPUs of one model. What is not known is left out."""

    name: str
    count: int
    architecture: str | None
    compute_capability: str | None
    memory_bytes: int | None
    mig: bool
    """Whether they can be cut into MIG partitions."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was verified on a machine, with which versions, and what was found."""

    version: str
    """That of gpuctl."""
    driver_version: str | None
    """That of the NVIDIA driver."""
    cuda_version: str | None
    """The newest CUDA that the NVIDIA driver can run."""
    kernel: str
    processor: str
    models: tuple[Model, ...]
    may_change: bool
    """Whether claims of each kind were asked for, with --may-change."""
    fake: bool
    """Whether the GPUs are those of a fake machine."""
    seconds: float
    """How long it took."""
    results: tuple[Result, ...]

    @property
    def refused(self) -> bool:
        """Whether nothing was changed although it was asked for, since somebody uses the GPUs."""
        return any(one.check == "may-change" and one.status == "fail" for one in self.results)

    @property
    def holds(self) -> bool:
        """Whether no check failed."""
        return all(one.status != "fail" for one in self.results)


def make_report(
    subject: Subject,
    results: Sequence[Result],
    *,
    may_change: bool,
    seconds: float,
) -> VerifyReport:
    """The report about a node."""
    inventory = None if isinstance(subject.seen.inventory, Unread) else subject.seen.inventory
    system = os.uname()
    return VerifyReport(
        version=own_version(),
        driver_version=inventory.driver_version if inventory else subject.seen.kernel_driver,
        cuda_version=inventory.cuda_driver_version if inventory else None,
        kernel=system.release,
        processor=system.machine,
        models=_models(inventory.gpus if inventory else ()),
        may_change=may_change,
        fake=subject.is_fake,
        seconds=round(seconds, 1),
        results=tuple(results),
    )


def _models(gpus: Sequence[Gpu]) -> tuple[Model, ...]:
    counts = Counter(map(_model, gpus))
    return tuple(replace(one, count=count) for one, count in counts.items())


def _model(gpu: Gpu) -> Model:
    return Model(
        gpu.product_name or "unknown",
        1,
        gpu.architecture,
        gpu.cuda_compute_capability,
        gpu.memory_bytes,
        gpu.mig is not None,
    )


def masked(content: Any, mask: Callable[[str], str]) -> Any:
    """A document with all of its texts masked."""
    if isinstance(content, str):
        return mask(content)
    if isinstance(content, Mapping):
        return {key: masked(value, mask) for key, value in content.items()}
    return [masked(one, mask) for one in content] if isinstance(content, list) else content


def masking(host_name: str) -> Callable[[str], str]:
    """A function that masks one report: the same UUID gets the same stand-in everywhere."""
    known: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        return known.setdefault(match[0], f"{match[1]}-{len(known) + 1}")

    def mask(text: str) -> str:
        shown = masked_text(_UUID.sub(stand_in, text))
        return shown.replace(host_name, "HOST") if len(host_name) >= _LEAST_HOST_NAME else shown

    return mask


def picture(report: VerifyReport, results: str) -> str:
    """The report for people; ``results`` are its results as lines."""
    return f"{results}\n\n{_verdict(report)}"


def _verdict(report: VerifyReport) -> str:
    if report.refused:
        return "the machine was left as it is: what would have been changed was not verified"
    warns = any(one.status == "warn" for one in report.results)
    holds = "everything holds" if report.holds else "not everything holds"
    warnings = ", with warnings" if report.holds and warns else ""
    return f"{holds} on this machine{warnings}{_FAKE if report.fake else _ASK}"
