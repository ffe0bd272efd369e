"""The report of a verification: a document for scripts, a table, and a row for docs/compatibility.md."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from driver.hardware.gpu import Gpu
from gpuctl.cli.output import own_version
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Result, Status
from gpuctl.gather.masking import masked_text
from gpuctl.verify.subject import Figure, Subject

KIND = "VerifyReport"

_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.ASCII)
_LEAST_HOST_NAME = 3
"""A shorter name of a host, such as ``a``, is part of too many words to be looked for."""

_ASK = ": please send the report, as docs/verify.md describes"
_FAKE = ", which is fake"


@dataclass(frozen=True, slots=True)
class Model:
    """GPUs of one model. Unknown values are None."""

    name: str
    count: int
    architecture: str | None
    compute_capability: str | None
    memory_bytes: int | None
    mig: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What was verified, with which versions, and what was found.

    ``may_change`` is whether the part that changes the node was asked for, ``fake`` whether the GPUs were
    those of a fake machine.
    """

    version: str
    driver_version: str | None
    cuda_version: str | None
    kernel: str
    processor: str
    models: tuple[Model, ...]
    may_change: bool
    fake: bool
    seconds: float
    results: tuple[Result, ...]
    figures: tuple[Figure, ...]

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
    figures: Sequence[Figure],
    *,
    may_change: bool,
    seconds: float,
) -> Report:
    """The report about a node."""
    inventory = None if isinstance(subject.seen.inventory, Unread) else subject.seen.inventory
    system = os.uname()
    return Report(
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
        figures=tuple(figures),
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


def picture(report: Report, results: str) -> str:
    """The report for people; ``results`` are its results as lines."""
    lines = [results]
    if report.figures:
        lines += ["", *map(_figure_line, report.figures)]
    lines += ["", _verdict(report)]
    return "\n".join(lines)


def _figure_line(figure: Figure) -> str:
    fake = "" if figure.fake_milliseconds is None else f" (the fake: {figure.fake_milliseconds:.0f} ms)"
    return f"{figure.what}: {figure.milliseconds:.0f} ms{fake}"


def _verdict(report: Report) -> str:
    if report.refused:
        return "the machine was left as it is: what would have been changed was not verified"
    warns = any(one.status == "warn" for one in report.results)
    holds = "everything holds" if report.holds else "not everything holds"
    warnings = ", with warnings" if report.holds and warns else ""
    return f"{holds} on this machine{warnings}{_FAKE if report.fake else _ASK}"


def markdown_row(report: Report) -> str:
    """A row for the table of seen hardware in docs/compatibility.md."""
    models = ", ".join(f"{one.count} x {one.name}" for one in report.models) or "unknown"
    driver = f"{report.driver_version or 'unknown'}, CUDA {report.cuda_version or 'unknown'}"
    counts = Counter(one.status for one in report.results)
    checks = ", ".join(f"{counts[word]} {word}" for word in get_args(Status) if counts[word])
    kinds = [one.check for one in report.results if one.place == "claims" and one.status in ("ok", "warn")]
    failed = [one.check for one in report.results if one.status == "fail"]
    wrong = [one for one in failed if one != "may-change"]
    cells = (
        f"{models}{' (fake)' if report.fake else ''}",
        driver,
        f"{report.kernel}, {report.processor}",
        checks,
        ", ".join(kinds) or "-",
        ", ".join(wrong) or "-",
        report.version,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
