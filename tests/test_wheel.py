"""The wheel has all that its commands need: they work where nothing of the checkout is."""

import ast
import importlib.metadata
import json
import re
import site
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "gpu-dra"
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
NOT_TO_RUN = {"grpcio-tools", "pytest"}
"""The generator of the stubs is for a checkout, and the fixture of envtest for those who have pytest."""

PROCESSES = [
    *("gpu-dra-controller", "gpu-dra-kubeletplugin", "gpu-dra-mps", "gpu-dra-page", "gpu-dra-preemptor"),
    *("gpu-dra-cliques", "gpu-dra-webhook"),
]

WORKLOAD = """\
version: v1
pods:
- name: train
  count: 3
  claims:
  - devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.nvidia.com
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return folder / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment of its own with the wheel, beside the libraries of this one.

    A path in a .pth file brings the libraries, and not the .pth file that leads to the checkout.
    """
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    python = environment / "bin" / "python"
    base = {"base": str(environment), "platbase": str(environment)}
    paths = sysconfig.get_paths("posix_prefix", vars=base)
    destination = SchemeDictionaryDestination(paths, interpreter=str(python), script_kind="posix")
    with WheelFile.open(wheel) as source:
        install(source, destination, additional_metadata={})
    return environment / "bin"


def run(installed: Path, folder: Path, *command: str) -> str:
    """What an installed program prints, run in a folder that is not the checkout."""
    done = subprocess.run(
        [installed / command[0], *command[1:]],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_modules_are_those_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    found = run(installed, tmp_path, "python", "-c", "import gpuctl, driver; print(gpuctl.__file__)")
    assert Path(found).is_relative_to(installed.parent)


def test_gpuctl_says_its_version(installed: Path, tmp_path: Path) -> None:
    version = importlib.metadata.version(DISTRIBUTION)
    assert run(installed, tmp_path, "gpuctl", "--version") == f"gpuctl {version}\n"


def test_the_demo_runs_to_its_end(installed: Path, tmp_path: Path) -> None:
    facts = json.loads(run(installed, tmp_path, "gpuctl", "demo", "-o", "json"))
    assert facts["pods"]


def test_simulate_knows_the_machines_and_the_shipped_classes(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    told = run(
        installed,
        tmp_path,
        *("gpuctl", "simulate", "--nodes", "a30-quad=1"),
        *("--workload", "workload.yaml", "-o", "json"),
    )
    [group] = json.loads(told)["groups"]
    assert (group["placed"], group["waiting"]) == (3, 0)


def test_kubectl_finds_the_plugin_and_its_completion(installed: Path, tmp_path: Path) -> None:
    assert (
        run(installed, tmp_path, "kubectl-gpu", "plan", "--machines", "-o", "name").split()[-1]
        == "standard_nd96isr_h200_v5"
    )
    assert run(installed, tmp_path, "kubectl_complete-gpu", "plan", "--machines", "gh") == "gh200\n:4\n"


def test_the_schemas_of_documents_ship(installed: Path, tmp_path: Path) -> None:
    script = "import gpuctl, pathlib; print(*pathlib.Path(gpuctl.__file__).with_name('schemas').iterdir())"
    shipped = {Path(path).name for path in run(installed, tmp_path, "python", "-c", script).split()}
    assert shipped == {path.name for path in (ROOT / "gpuctl" / "schemas").iterdir()}
    assert "GpuStatus.json" in shipped


@pytest.mark.parametrize("program", PROCESSES)
def test_each_process_says_its_version(installed: Path, tmp_path: Path, program: str) -> None:
    version = importlib.metadata.version(DISTRIBUTION)
    assert run(installed, tmp_path, program, "--version") == f"{program} {version}\n"


@pytest.mark.parametrize("program", PROCESSES)
def test_each_process_explains_its_flags(installed: Path, tmp_path: Path, program: str) -> None:
    assert "--log-level" in run(installed, tmp_path, program, "--help")


def test_what_builds_the_image_stays_out(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = [name for name in archive.namelist() if name.startswith("deploy/")]
    assert "deploy/rbac.yaml" in shipped
    assert [name for name in shipped if name.startswith("deploy/image/")] == []


def test_what_the_wheel_imports_is_declared(wheel: Path) -> None:
    required = importlib.metadata.requires(DISTRIBUTION) or ()
    declared = {canonical(re.split(r"[^\w.-]", one)[0]) for one in required if "extra ==" not in one}
    with zipfile.ZipFile(wheel) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}
    imported = {module for source in sources.values() for module in imported_by(source)}
    foreign = imported - {name.split("/")[0] for name in sources} - sys.stdlib_module_names
    brought_by = importlib.metadata.packages_distributions()
    needed = {canonical(name) for module in foreign for name in brought_by.get(module, [module])}
    assert needed - declared == NOT_TO_RUN


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_by(source: str) -> set[str]:
    """The top-level modules that a source imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found
