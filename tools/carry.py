"""``python -m tools.carry TARGET`` builds a folder that verifies the GPUs of an isolated machine.

The folder is copied there and needs neither network nor installation, only a Python like the one that built
it. Its ``packages`` are this project's wheel and the wheels that ``verify`` needs, unpacked, as they are
installed in this environment. ``verify`` and ``gpuctl`` in it are the programs, and ``hardware`` is that of
tools/hardware, for those who make this driver.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from hatchling import build as hatchling

from deploy.image.build import SOURCE

MOST_BYTES = 48 << 20
"""How big the folder may be."""

CARRIED = (
    *("click", "google-re2", "grpcio", "nvidia-ml-py", "prometheus-client"),
    *("protobuf", "pyyaml", "rich", "structlog", "typing-extensions", "urllib3"),
    # What the kubernetes package imports to read a kubeconfig, by which verify's processes reach its server.
    *("kubernetes", "annotated-types", "certifi", "charset-normalizer", "durationpy", "idna", "oauthlib"),
    *("pydantic", "pydantic-core", "python-dateutil", "requests", "requests-oauthlib", "typing-inspection"),
    "websocket-client",
)
"""The distributions that the driver's processes and the programs of the folder import."""

_NOT_FOR_KUBECONFIGS = tuple(PurePath("kubernetes", part) for part in ("aio", "client/api", "client/models"))
"""What is left out of the package, but for the ``__init__.py`` of each folder."""

CARRIED_TOOLS = (
    *("tools/__init__.py", "tools/hardware/**/*.py"),
    *("tools/conformance/__init__.py", "tools/conformance/cdi_edits.py"),
)
"""The files of tools/hardware, with what it imports of tools."""

LEFT_OUT = {
    "jinja2": "for gpuctl web alone",
    "markupsafe": "for gpuctl web alone",
    "starlette": "for gpuctl web alone",
    "uvicorn": "for gpuctl web alone",
    "jsonschema": "for gpuctl simulate and gpuctl import alone",
}
"""Other dependencies of this project, and why the folder does not have them."""

_LAUNCHER = """\
#!/bin/sh
# Runs @program@ with the packages of this folder. PYTHON names another interpreter than python3.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)
python=${PYTHON:-python3}
found=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))') || found=none
if [ "$found" != "@modules@" ]; then
    echo "$0: this folder needs Python @version@ (@modules@), and $python is another one ($found)." >&2
    echo "Name it with PYTHON, or build a folder for yours: make clean carry PYTHON=python3.12" >&2
    exit 2
fi
PYTHONPATH=$here/packages PYTHONNOUSERSITE=1
export PYTHONPATH PYTHONNOUSERSITE
exec "$python" -P -m @module@ "$@"
"""
_VERIFY = """\
#!/bin/sh
# Runs gpuctl verify with the packages of this folder.
exec "$(dirname -- "$0")/gpuctl" verify "$@"
"""
_NOT_RUN = frozenset({".pyc", ".pyi", ".pyx", ".pxd"})


class CarryRefused(Exception):
    """The folder cannot be built; the message says what to change."""


def build_folder(target: Path) -> int:
    """Build the folder, which must not exist or be empty; returns its size in bytes. Raises CarryRefused."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CarryRefused(f"{target} is there already: remove it, or name another folder")
    packages = target / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    for name in CARRIED:
        _copy(_installed(name), packages)
    _unpack_own_wheel(packages)
    # No wheel has it: users do not need it.
    for file in CARRIED_TOOLS:
        for source in sorted(SOURCE.glob(file)):
            place = packages / source.relative_to(SOURCE)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
    # Names the interpreter, its version, the processor and the C library: .cpython-311-x86_64-linux-gnu.so
    modules = sysconfig.get_config_var("EXT_SUFFIX")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    launcher = _LAUNCHER.replace("@modules@", modules).replace("@version@", version)
    programs = {
        name: launcher.replace("@program@", name).replace("@module@", module)
        for name, module in (("gpuctl", "gpuctl"), ("hardware", "tools.hardware"))
    }
    for name, text in (*programs.items(), ("verify", _VERIFY)):
        (target / name).write_text(text)
        (target / name).chmod(0o755)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        raise CarryRefused(f"{target} has {size / 2**20:.1f} MiB, and {MOST_BYTES >> 20} are the limit")
    return size


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise CarryRefused(f"{name} is not installed in {sys.prefix}: make the environment anew") from error


def _copy(installed: Distribution, packages: Path) -> None:
    """Copy the files of a distribution that are imported, and its licenses."""
    for file in installed.files or ():
        # Programs lie beside the packages; the folder has its own.
        if ".." in file.parts or _is_left_out(file):
            continue
        place = packages / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), place)


def _is_left_out(file: PurePath) -> bool:
    return (
        file.suffix in _NOT_RUN
        or "__pycache__" in file.parts
        or any(file.is_relative_to(folder) and file.name != "__init__.py" for folder in _NOT_FOR_KUBECONFIGS)
    )


def _unpack_own_wheel(packages: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.chdir(SOURCE), contextlib.redirect_stdout(io.StringIO()):
            name = hatchling.build_wheel(folder)
        with zipfile.ZipFile(Path(folder) / name) as wheel:
            wheel.extractall(packages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the folder; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.carry", description=__doc__)
    parser.add_argument("target", type=Path, help="the folder to build")
    given = parser.parse_args(arguments)
    try:
        size = build_folder(given.target)
    except CarryRefused as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(
        f"{given.target} has {size / 2**20:.1f} MiB: copy it, and run {given.target.name}/verify\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
