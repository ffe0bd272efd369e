"""The program ``python -m gpuctl.probe``: uses the GPUs that it sees, and prints one line of JSON."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from driver.errors import ConfigError
from gpuctl.probe.cuda import LIBRARY, Cuda, LibCuda
from gpuctl.probe.run import Probe

REAL = "real"


def cuda_from_flag(text: str) -> Cuda:
    """The CUDA of ``real``, of a library's path, or of ``fake:MACHINE@STATE``.

    Raises CudaError, and ConfigError for a machine that does not exist.
    """
    if text.startswith("fake:"):
        from fakegpu.cuda.fake_cuda import FakeCuda

        return FakeCuda.open(text, os.environ)
    # Otherwise the driver keeps the compiled kernel in a file below the user's home folder.
    os.environ.setdefault("CUDA_CACHE_DISABLE", "1")
    return LibCuda(LIBRARY if text == REAL else text)


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns its exit code: 0 if nothing failed and all kernels computed what they should.

    It starts no threads and prints nothing before it is done: whoever started it may kill it at any time.
    """
    parser = argparse.ArgumentParser(
        prog="python -m gpuctl.probe",
        description="Use all GPUs that CUDA shows, and print one line of JSON about what was there.",
    )
    parser.add_argument("--fill", action="store_true", help="allocate all memory that there is")
    parser.add_argument("--hold", action="store_true", help="keep the memory until stdin ends")
    parser.add_argument("--cuda", default=REAL, help="real, the path of libcuda, or fake:MACHINE@STATE")
    options = parser.parse_args(arguments)
    probe = Probe(lambda: cuda_from_flag(options.cuda))
    try:
        probe.run(fill=options.fill)
    except ConfigError as error:
        parser.error(f"{error.what}: {error.way_out}")
    if options.hold:
        _print(probe)
        sys.stdin.read()
        probe.release()
    else:
        # Before the line, so that it has an error of this, too.
        probe.release()
        _print(probe)
    return 0 if probe.is_well else 1


def _print(probe: Probe) -> None:
    sys.stdout.write(f"{probe.answer().printed()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
