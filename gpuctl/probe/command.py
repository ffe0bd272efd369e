"""The command ``gpuctl probe``: whether a container got the GPUs that its claim promises."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.probe.promise import METADATA_FOLDER, judged, read_promises


@click.command()
@click.option(
    "--metadata",
    metavar="PATH",
    default=(METADATA_FOLDER,),
    show_default=METADATA_FOLDER,
    multiple=True,
    type=click.Path(path_type=Path),
    help="The claim's metadata: a file, or the folder of all; may be given several times.",
)
@click.option(
    "--cuda", metavar="CUDA", default="real", help="real, the path of libcuda, or fake:MACHINE@STATE."
)
def probe(metadata: tuple[Path, ...], cuda: str) -> None:
    """Say in one line whether this container has the GPUs that its claim promises.

    It runs in a container with a claim, and compares the claim's metadata files with what CUDA shows and
    gives: the devices and no others, a kernel on each, memory up to its limit and not beyond. It takes all
    memory of whole GPUs, partitions and shares with a limit, and 64 MiB of others, and frees it.

    Exit codes: 0 if the promise is kept, 3 if not, 2 for a wrong command line.
    """
    from gpuctl.cli.output import exit_amiss, say
    from gpuctl.probe.__main__ import cuda_from_flag
    from gpuctl.probe.run import Probe

    promises = read_promises(metadata)
    used = Probe(lambda: cuda_from_flag(cuda))
    used.run(fill=all(one.may_be_filled for one in promises))
    used.release()
    verdict = judged(promises, used.devices, used.error)
    say(verdict.line)
    if not verdict.kept:
        exit_amiss()
