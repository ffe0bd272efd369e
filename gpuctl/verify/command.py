"""The command ``gpuctl verify``: checks whether GPUs work on a machine, without a cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.output import document, emit, exit_amiss, output_option, say
from gpuctl.doctor.inside.places import place_options

if TYPE_CHECKING:
    from gpuctl.doctor.check import Result
    from gpuctl.doctor.inside.places import Places
    from gpuctl.verify.report import VerifyReport
    from gpuctl.verify.subject import Subject


@click.command()
@click.option(
    "--may-change",
    is_flag=True,
    help="Also prepare a claim of each kind on an idle GPU, and restore the machine afterwards.",
)
@click.option("--restore", is_flag=True, help="Restore the machine after a verification that was killed.")
@click.option(
    "--to", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as JSON into a new file."
)
@partial(place_options, hidden=False)
@output_option("wide")
def verify(output: str, to: Path | None, *, may_change: bool, restore: bool, **places: Any) -> None:
    """Check whether GPUs work on this machine: for minutes, and without a cluster.

    Without --may-change nothing is changed: the NVIDIA driver, NVML and device nodes are looked at, and a
    small CUDA program runs on a GPU that nobody uses. With --may-change the driver's plugin runs, and
    prepares a claim of each kind: whole, MIG, time-slicing, MPS, memory limits, passthrough. It needs root,
    and refuses while anything else uses or manages the GPUs.

    Exit codes: 0 when everything holds, 3 when something does not, 1 without an NVIDIA GPU or driver, 2 for a
    wrong command line, 130 when Ctrl-C ended it.
    """
    from driver.process.log import configure
    from gpuctl.doctor.inside.places import read_places
    from gpuctl.verify.reading import missing, node_of, read_subject
    from gpuctl.verify.report import make_report

    if restore and (to or may_change):
        raise click.UsageError("--restore only restores: leave out --to and --may-change")
    _check_new(to)
    configure("error")  # the code of the driver's processes logs what it reads
    given = read_places(places, ())
    if restore:
        _restore(given, output)
        return
    began = time.monotonic()
    with node_of(given) as node:
        subject = read_subject(node)
        if (error := missing(subject.seen)) is not None:
            raise error
        results = _verified(subject, may_change=may_change)
    report = make_report(subject, results, may_change=may_change, seconds=time.monotonic() - began)
    _print(report, output, to)
    if not report.holds:
        exit_amiss()


def _check_new(path: Path | None) -> None:
    """Refuse a path that cannot be written: now, not after minutes."""
    if path is None:
        return
    if path.exists():
        raise click.UsageError(f"{path} exists already: name a new one")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent} is not a folder: make it first")


def _verified(subject: Subject, *, may_change: bool) -> tuple[Result, ...]:
    """Run the checks of all parts."""
    from gpuctl.doctor.check import run_checks
    from gpuctl.verify.checks.cuda_checks import CUDA_CHECKS
    from gpuctl.verify.checks.node_checks import NODE_CHECKS

    results: list[Result] = []
    for place, checks in (("node", NODE_CHECKS), ("cuda", CUDA_CHECKS)):
        _progress(f"checking {place}")
        results += run_checks(place, checks, subject)
    if may_change:
        from gpuctl.verify.change.run import verify_changes

        results += verify_changes(subject, _progress)
    return tuple(results)


def _restore(places: Places, output: str) -> None:
    """Bring the machine back to what it was before a verification that was killed."""
    from gpuctl.doctor.report import has_failed
    from gpuctl.verify.change.undo import restore

    results = restore(places, _progress)
    say(_lines(results, output))
    if has_failed(results):
        exit_amiss()


def _print(report: VerifyReport, output: str, to: Path | None) -> None:
    from gpuctl.gather.archive import write_new
    from gpuctl.gather.masking import masked_json
    from gpuctl.verify.report import masked, masking, picture

    # The table stays on this machine; everything else is made to be sent to others.
    data = masked(masked_json(document("VerifyReport", report)), masking(os.uname().nodename))
    if to is not None:
        write_new(to, json.dumps(data, indent=2).encode() + b"\n")
        say(f"{to}: the report; check what it contains before you share it", err=True)
    emit(output, data, lambda: picture(report, _lines(report.results, output)))


def _lines(results: Iterable[Result], output: str) -> str:
    from gpuctl.doctor.report import picture

    return picture(tuple(results), wide=output == "wide")


def _progress(step: str) -> None:
    """Say on stderr what is done now."""
    say(step, err=True)
