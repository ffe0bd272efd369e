"""Assembles the files that the image adds to its base: programs, libraries, bytecode, bill of materials.

Run as ``python3 -m deploy.image.assemble`` in the stage of the image whose Python is that of the base, with
what ``libraries`` installed and both ``build.sh`` built. Two runs over the same give the same files, bit for
bit: no clock is read, and every time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

from deploy.image import bill
from deploy.image.libraries import BUILDER, REPORT, SITE

SOURCE = Path(__file__).parents[2]
DISTRIBUTION = "gpu-dra"

HOME = "usr/local/lib/gpu-dra"
PROGRAMS = "usr/local/bin"
SHARE = "usr/share/gpu-dra"

LAUNCHER = """\
#!/{home}/bin/python3 -I
import sys

from {module} import {function}

sys.exit({function}())
"""
"""-I: neither the environment nor the working folder brings modules into a process that may be root."""

UNUSED = (
    "*/tests",
    "kubernetes/aio",  # the asynchronous half of the client, half of the size of all libraries
    "bin",  # programs of libraries, with the path of the stage's Python
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.pxi",
    "**/*.c",
    "**/*.h",
)
"""What no process imports, as patterns below the libraries."""


def main(arguments: list[str] | None = None) -> None:
    """Assemble the tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--libraries", "--hook", "--into"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--base", required=True, help="the reference of the base image, for the bill")
    given = parser.parse_args(arguments)
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    into: Path = given.into

    site = make_environment(into / HOME, Path(sys.executable))
    # The wheel comes after the libraries, and what is unused goes before the rest is compiled.
    shutil.copytree(given.libraries / SITE, site, dirs_exist_ok=True)
    wheel = build_wheel(given.libraries / BUILDER, into.parent)
    install_wheel(wheel, site, into / PROGRAMS)
    remove_unused(site)
    compile_all(site, into)

    for name in (bill.HOOK, f"{bill.HOOK}.version", bill.MEMORY_HOOK):
        copy(given.hook / name, into / HOME / name)
    # The bill lists what was really installed, not what the lock files name.
    found = sorted(distributions(path=[str(site)]), key=lambda one: one.name.lower())
    modules = bill.go_modules((given.hook / "modules.txt").read_text())
    own_modules = bill.go_modules((given.hook / f"{bill.MEMORY_HOOK}.modules.txt").read_text())
    licenses = bill.gather_licenses(found, given.hook / "licenses", into / SHARE / "licenses")
    copy(given.hook / "licenses" / modules.main.name / "LICENSE", into / HOME / f"{bill.HOOK}.license")
    components = bill.python_components(found, bill.archive_digests(given.libraries / REPORT), licenses)
    programs = (
        bill.Program(given.hook / bill.HOOK, modules),
        bill.Program(given.hook / bill.MEMORY_HOOK, own_modules),
    )
    document = bill.Bill(DISTRIBUTION, components, *programs, given.base, epoch)
    (into / SHARE / "sbom.cdx.json").write_text(document.to_json())
    settle(into, epoch)


def copy(source: Path, target: Path) -> None:
    """Copy a file with its mode, into a folder that may have to be made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def make_environment(home: Path, python: Path) -> Path:
    """Make a virtual environment around the base's Python (PEP 405); returns its folder for packages.

    In it the processes do not import packages of the base, pip for example.
    """
    # Not by the venv module, whose scripts and settings have the paths of this stage in them.
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    site = home / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(python)
    settings = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    (home / "pyvenv.cfg").write_text(settings)
    return site


def build_wheel(builder: Path, folder: Path) -> Path:
    """Build the wheel of this project with the pinned build backend (PEP 517); returns its path."""
    script = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": str(builder)}
    command = [sys.executable, "-c", script, str(folder)]
    built = subprocess.run(
        command, cwd=SOURCE, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return folder / built.stdout.split()[-1]


def install_wheel(wheel: Path, site: Path, programs: Path) -> None:
    """Install the wheel, and write a program for each of its console scripts."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    programs.mkdir(parents=True)
    [own] = [one for one in distributions(path=[str(site)]) if one.name == DISTRIBUTION]
    for script in own.entry_points.select(group="console_scripts"):
        program = programs / script.name
        program.write_text(LAUNCHER.format(home=HOME, module=script.module, function=script.attr))
        program.chmod(0o755)


def remove_unused(site: Path) -> None:
    """Remove what no process imports; the lists of installed files (RECORD) still name it."""
    for pattern in UNUSED:
        for path in sorted(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def compile_all(site: Path, root: Path) -> None:
    """Compile every module, since the processes run on a read-only root file system.

    Tracebacks name the paths of the image.
    """
    # Unchecked (PEP 552): the sources never change, so no process compares their time or hash. Bytecode with
    # times would also differ between two builds.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(
        site, maxlevels=50, quiet=2, stripdir=str(root), prependdir="/", invalidation_mode=mode, workers=0
    )


def settle(tree: Path, epoch: int) -> None:
    """Give every file the same time, and rights by which only its owner can write."""
    # From the deepest path upwards: a change in a folder would give the folder a new time.
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_symlink():  # a link has no rights of its own
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    tree.chmod(0o755)
    os.utime(tree, (epoch, epoch))


if __name__ == "__main__":
    main()
