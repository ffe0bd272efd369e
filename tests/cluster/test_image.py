"""The image holds what its processes need, nobody else can write to it, and they run from it on a node."""

import base64
import gzip
import json
import re
import struct
import subprocess
import tarfile
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.clusters import PACKAGE_ROOT, Object, RealCluster, paths, wait_for, wait_for_list
from tests.controller.webhook.peer import make_pair
from tools.testbed.chart import NAMESPACE, rendered
from tools.testbed.driver_image import IMAGE, build_anew

PROCESSES = (
    *("gpu-dra-controller", "gpu-dra-kubeletplugin", "gpu-dra-mps", "gpu-dra-page", "gpu-dra-preemptor"),
    *("gpu-dra-cliques", "gpu-dra-webhook"),
)
HOME = "usr/local/lib/gpu-dra"
HOOK = f"/{HOME}/nvidia-cdi-hook"
PYTHON = f"/{HOME}/bin/python3"
MOST_BYTES = 120_000_000
AARCH64 = 183
"""The machine in the head of an ELF file (EM_AARCH64)."""

LOCKED_DOWN = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Layers:
    """An image as its archive has it: ``added`` is what lies over the base."""

    config: Object
    folder: Path
    names: list[str]

    @property
    def added(self) -> Path:
        return self.folder / self.names[-1]

    def text(self, path: str) -> str:
        """A file that the image adds, by its path without a slash at the begin."""
        with tarfile.open(self.added) as layer:
            file = layer.extractfile(path)
            assert file is not None, path
            return file.read().decode()


@pytest.fixture(scope="session")
def layers(driver_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Layers:
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(driver_image) as archive:
        archive.extractall(folder, filter="data")
    [manifest] = json.loads((folder / "manifest.json").read_text())
    assert manifest["RepoTags"] == [IMAGE]
    return Layers(json.loads((folder / manifest["Config"]).read_text()), folder, manifest["Layers"])


def test_it_is_small(layers: Layers) -> None:
    packed = [gzip.compress((layers.folder / name).read_bytes(), 6) for name in layers.names]
    assert sum(map(len, packed)) < MOST_BYTES


def test_its_default_user_has_no_rights(layers: Layers) -> None:
    assert layers.config["config"]["User"] == "65532:65532"
    assert layers.config["config"]["Labels"]["org.opencontainers.image.version"] == version("gpu-dra")


def test_nothing_is_writable_by_others_and_all_belongs_to_root(layers: Layers) -> None:
    with tarfile.open(layers.added) as layer:
        entries = layer.getmembers()
    assert len(entries) > 1000
    assert [one.name for one in entries if not one.issym() and one.mode & 0o022] == []
    assert {(one.uid, one.gid) for one in entries} == {(0, 0)}
    assert [one.name for one in entries if one.mode & 0o7000] == []


def test_every_module_is_compiled_and_never_compared_with_its_source(layers: Layers) -> None:
    with tarfile.open(layers.added) as layer:
        names = [one.name for one in layer.getmembers() if one.isfile()]
        modules = [PurePosixPath(name) for name in names if name.endswith(".py") and HOME in name]
        compiled = {name for name in names if name.endswith(".pyc")}
        flags = set()
        for name in compiled:
            file = layer.extractfile(name)
            assert file is not None
            flags.add(struct.unpack("<I", file.read(8)[4:])[0])
    tags = {name.split(".")[-2] for name in compiled}
    assert len(tags) == 1
    [tag] = tags
    missing = [
        one for one in modules if str(one.parent / "__pycache__" / f"{one.stem}.{tag}.pyc") not in compiled
    ]
    assert len(modules) > 500
    assert missing == []
    assert flags == {0b01}  # by hash, unchecked (PEP 552)


def test_there_is_no_pip_and_nothing_of_the_tests(layers: Layers) -> None:
    with tarfile.open(layers.added) as layer:
        names = layer.getnames()
    folders = {name.split("/site-packages/")[1].split("/")[0] for name in names if "/site-packages/" in name}
    assert {"controller", "kubeletplugin", "driver", "grpc"} <= folders
    assert folders.isdisjoint({"pip", "setuptools", "hatchling", "pytest", "mypy", "tests", "bench", "bin"})


def test_the_bill_names_what_is_pinned(layers: Layers) -> None:
    bill = json.loads(layers.text("usr/share/gpu-dra/sbom.cdx.json"))
    listed = {(one["name"].lower().replace("_", "-"), one["version"]) for one in bill["components"]}
    lock = (PACKAGE_ROOT / "deploy/image/requirements.lock").read_text()
    pinned = set(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == ("gpu-dra", version("gpu-dra"))
    assert len(pinned) > 20
    assert {(name.replace("_", "-"), one) for name, one in pinned} <= listed
    wheels = [one for one in bill["components"] if one.get("purl", "").startswith("pkg:pypi/")]
    assert all(one["hashes"][0]["content"] in lock for one in wheels)


def test_the_bill_names_the_modules_of_the_hook(layers: Layers) -> None:
    bill = json.loads(layers.text("usr/share/gpu-dra/sbom.cdx.json"))
    required = (PACKAGE_ROOT / "deploy/image/hook/go.mod").read_text()
    toolkit = re.search(r"nvidia-container-toolkit v(\S+)", required)
    assert toolkit is not None
    versions = {one["name"]: one["version"] for one in bill["components"]}
    assert versions["nvidia-cdi-hook"] == toolkit[1]
    assert versions["github.com/NVIDIA/go-nvml"] in required
    assert layers.text(f"{HOME}/nvidia-cdi-hook.version") == f"{toolkit[1]}\n"


def test_the_drivers_own_hook_runs_on_any_host(layers: Layers, tmp_path: Path) -> None:
    with tarfile.open(layers.added) as layer:
        layer.extract(f"{HOME}/gpu-memory-hook", tmp_path, filter="data")
    program = tmp_path / HOME / "gpu-memory-hook"
    bill = json.loads(layers.text("usr/share/gpu-dra/sbom.cdx.json"))
    assert "gpu-memory-hook" in {one["name"] for one in bill["components"]}
    done = subprocess.run([program], capture_output=True, check=False)
    assert b"does not let this container start: wrong arguments" in done.stderr
    assert b"/lib64/ld-linux" not in program.read_bytes()


def test_the_licence_of_everything_lies_in_it(layers: Layers) -> None:
    bill = json.loads(layers.text("usr/share/gpu-dra/sbom.cdx.json"))
    with tarfile.open(layers.added) as layer:
        names = layer.getnames()
    go = {one["name"] for one in bill["components"] if one.get("purl", "").startswith("pkg:golang/")}
    folders = {name.split("/licenses/go/")[1] for name in names if "/licenses/go/" in name}
    assert [one for one in go - {"std", "nvidia-cdi-hook"} if one not in folders] == []
    assert "std.LICENSE" in folders
    unnamed = [
        one["name"] for one in bill["components"] if "python" in one.get("purl", "") and "licenses" not in one
    ]
    assert unnamed == []
    assert "Apache License" in layers.text(f"{HOME}/nvidia-cdi-hook.license")
    assert "Apache License" in layers.text("usr/share/gpu-dra/licenses/python/gpu-dra/LICENSE")


def test_two_builds_give_the_same_layers(layers: Layers, tmp_path: Path) -> None:
    build_anew(tmp_path / "again.tar")
    with tarfile.open(tmp_path / "again.tar") as archive:
        archive.extractall(tmp_path / "again", filter="data")
    [manifest] = json.loads((tmp_path / "again" / "manifest.json").read_text())
    assert manifest["Layers"] == layers.names  # by their digests


def test_every_library_is_there_for_arm64(tmp_path: Path) -> None:
    venv.create(tmp_path / "pip", with_pip=True)  # the environment of the tests may have none
    python = str(tmp_path / "pip" / "bin" / "python")
    command = [python, "-m", "deploy.image.libraries", "arm64", str(tmp_path / "libraries")]
    subprocess.run(command, cwd=PACKAGE_ROOT, check=True)
    compiled = list((tmp_path / "libraries" / "site").rglob("*.so"))
    machines = {struct.unpack("<H", path.read_bytes()[18:20])[0] for path in compiled}
    assert len(compiled) > 5
    assert machines == {AARCH64}


@pytest.fixture(scope="module")
def cluster(real_cluster: RealCluster, driver_image: Path) -> RealCluster:
    """A cluster whose node has the image."""
    real_cluster.import_image(driver_image)
    return real_cluster


def pod(name: str, *command: str, **container: Any) -> Object:
    """A pod of the image as the webhook's: no user, no rights, no file that it could write."""
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "securityContext": LOCKED_DOWN,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [{**main, **container}],
        },
    }


def ready(found: Any) -> bool:
    """Whether a pod's containers are ready."""
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture
def asleep(cluster: RealCluster, namespace: str) -> tuple[RealCluster, str]:
    """The name of a pod in which commands are run, with the image's default user."""
    cluster.api.create(pod("asleep", PYTHON, "-c", "import signal; signal.pause()"), namespace)
    wait_for(cluster.api, paths.pod("asleep", namespace), ready)
    return cluster, namespace


def test_each_program_starts_on_a_node_without_any_rights(asleep: tuple[RealCluster, str]) -> None:
    cluster, namespace = asleep
    for program in PROCESSES:
        assert (
            cluster.exec("asleep", [program, "--version"], namespace) == f"{program} {version('gpu-dra')}\n"
        )
        assert "--log-level" in cluster.exec("asleep", [program, "--help"], namespace)
    assert cluster.exec("asleep", ["gpuctl", "--version"], namespace) == f"gpuctl {version('gpu-dra')}\n"
    assert "hgx-h100" in cluster.exec("asleep", ["gpuctl", "plan", "--machines", "-o", "name"], namespace)


def test_programs_take_their_modules_from_the_image_alone(asleep: tuple[RealCluster, str]) -> None:
    cluster, namespace = asleep
    script = "import sys, kubernetes.config, driver; print(driver.__file__, driver.__cached__, *sys.path)"
    source, compiled, *path = cluster.exec("asleep", [PYTHON, "-I", "-c", script], namespace).split()
    assert source.startswith(f"/{HOME}/lib/")
    assert compiled.startswith(f"/{HOME}/lib/")
    assert [one for one in path if "dist-packages" in one] == []


def test_the_hook_runs_and_says_the_version_beside_it(asleep: tuple[RealCluster, str]) -> None:
    cluster, namespace = asleep
    told = cluster.exec("asleep", ["cat", f"{HOOK}.version"], namespace).strip()
    assert cluster.exec("asleep", [HOOK, "--version"], namespace).split()[-1] == told


def test_the_webhook_serves_from_it_without_any_rights(
    cluster: RealCluster, namespace: str, tmp_path: Path
) -> None:
    pair = make_pair(tmp_path)
    files = {"tls.crt": pair.cert_file.read_bytes(), "tls.key": pair.key_file.read_bytes()}
    secret = {name: base64.b64encode(content).decode() for name, content in files.items()}
    named = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}}
    cluster.api.create({**named, "type": "kubernetes.io/tls", "data": secret}, namespace)
    served = pod(
        "webhook",
        *("gpu-dra-webhook", "--cert-file=/tls/tls.crt", "--key-file=/tls/tls.key", "--health-addr=:9504"),
        volumeMounts=[{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        readinessProbe={"httpGet": {"path": "/readyz", "port": 9504}, "periodSeconds": 1},
    )
    served["spec"]["volumes"] = [{"name": "tls", "secret": {"secretName": "tls"}}]
    cluster.api.create(served, namespace)

    found = wait_for(cluster.api, paths.pod("webhook", namespace), ready)

    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_page_of_the_chart_serves_from_it_and_reads_all_that_it_shows(cluster: RealCluster) -> None:
    host, port = cluster.pods_see_server_at
    repository, _, tag = IMAGE.rpartition(":")
    values = {
        "page": {"enabled": True},
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "apiServer": {"host": host, "port": str(port)},
    }
    objects = [one for one in rendered(values) if one["metadata"]["name"] == "gpu-dra-page"]
    assert len(objects) == 5
    script = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8470/').read().decode())"

    def is_ready(pods: list[Object]) -> bool:
        return len(pods) == 1 and ready(pods[0])

    cluster.api.apply([NAMESPACE, *objects])
    try:
        selector = "app.kubernetes.io/name=gpu-dra-page"
        (found,) = wait_for_list(
            cluster.api, paths.pod(namespace="gpu-dra"), is_ready, 120, labelSelector=selector
        )
        shown = cluster.exec(found["metadata"]["name"], [PYTHON, "-c", script], "gpu-dra")
    finally:
        for one in objects:
            cluster.api.delete(cluster.api.path_of(one, "gpu-dra"))

    assert "Waiting pods" in shown
    assert "Not up to date" not in shown
    assert "being read" not in shown
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0
