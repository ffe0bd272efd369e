"""``python -m tools.hardware`` checks and records a machine with GPUs for those who make this driver."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from driver.errors import DriverError
from driver.nvml.api import Nvml
from driver.process.log import configure
from gpuctl.cli.output import as_data, own_version
from gpuctl.doctor.check import Finding, Result, check, fail, ok, require, run_checks
from gpuctl.doctor.inside.places import place_options, read_places
from gpuctl.doctor.report import has_failed, picture
from gpuctl.gather.archive import write_new
from gpuctl.verify.reading import missing, node_of, read_subject
from gpuctl.verify.report import masked, masking
from gpuctl.verify.subject import Subject
from tools.hardware.contract.run import check_contract
from tools.hardware.nvidia_ctk import nvidia_ctk
from tools.hardware.nvidia_smi import nvidia_smi
from tools.hardware.recording import write_recording

_PATH = click.Path(path_type=Path)


@check
def nvml_contract(subject: Subject) -> Finding:
    """Whether NVML keeps what the driver relies on: each promise in a session of its own, 30 s for each call.

    Fails if it breaks a promise, or a call hangs.
    """
    require(subject.seen.inventory)
    return judged(subject.open_nvml)


def judged(open_nvml: Callable[[], Nvml]) -> Finding:
    """What the contract's clauses say about an NVML."""
    results = check_contract(open_nvml)
    wrong = [one for one in results if one.outcome in ("broken", "hung")]
    nothing = [f"{one.clause.name}: {line}" for one in results for line in one.lines if one not in wrong]
    kept = sum(one.outcome == "kept" for one in results)
    said = f"NVML keeps {kept} of {len(results)} promises"
    if wrong:
        lines = [f"{one.clause.name} ({one.clause.promise}): {line}" for one in wrong for line in one.lines]
        way_out = "look for Xid and NVRM messages in the kernel log; else the fake has to learn it"
        return fail(said, way_out, lines)
    return ok(said, nothing)


@click.command()
@click.option("--record", type=_PATH, metavar="FOLDER", help="Record the machine into a new folder.")
@click.option("--may-change", is_flag=True, help="Also record an MPS daemon, on a GPU that nobody uses.")
@click.option("--to", type=_PATH, metavar="FILE", help="Write the results as JSON into a new file.")
@place_options
def main(record: Path | None, to: Path | None, *, may_change: bool, **places: Any) -> None:
    """Check NVML's contract, compare it with NVIDIA's programs, and record the machine for the fakes."""
    configure("error")
    try:
        with node_of(read_places(places, ())) as node:
            subject = read_subject(node)
            if (error := missing(subject.seen)) is not None:
                raise error
            results = run_checks("hardware", (nvml_contract, nvidia_smi, nvidia_ctk), subject)
            if record is not None:
                names = ", ".join(write_recording(subject, record, may_change=may_change))
                results += (Result("hardware", "recording", "ok", f"{record} has {names}"),)
    except DriverError as error:
        raise click.ClickException(f"{error.what}: {error.way_out}") from error
    click.echo(picture(results, wide=True))
    if to is not None:
        write_new(to, _document(results))
    sys.exit(1 if has_failed(results) else 0)


def _document(results: tuple[Result, ...]) -> bytes:
    content = {"version": own_version(), "results": as_data(results)}
    return json.dumps(masked(content, masking(os.uname().nodename)), indent=2).encode() + b"\n"


if __name__ == "__main__":
    main()
