"""The real nvidia-cdi-hook, copied to the node, makes real containers ready and outlives its version."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import DriverNode, Object, RealCluster, go_programs, paths, wait_for
from tests.eventually import eventually
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, start, wait_released
from tests.gpus import gpu_device_name
from tests.plugin import hooks_folder

LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Hooked:
    """The driver's node while the plugin copies a hook of some version."""

    def __init__(self, driver: DriverNode, folder: Path) -> None:
        self.driver = driver
        self._folder = folder

    def serve(self, version: str) -> None:
        """Start the plugin of an image that has this version; the one before ends."""
        program = self._folder / version / "nvidia-cdi-hook"
        program.parent.mkdir()
        shutil.copy(go_programs("container-toolkit") / "nvidia-cdi-hook", program)
        with program.open("ab") as file:
            file.write(version.encode())  # another version is another file; what follows ELF is not read
        program.with_name("nvidia-cdi-hook.version").write_text(version)
        self.driver.process("kubeletplugin").stop()
        self.driver.start_plugin("--cdi-hook", f"copy:{program}")
        self.driver.wait_serving()

    def versions(self) -> list[str]:
        """The versions that lie on the node."""
        return sorted(path.name.partition("-")[0] for path in hooks_folder(self.driver.data_dir).iterdir())


@pytest.fixture
def hooked(driver: DriverNode, tmp_path: Path) -> Iterator[Hooked]:
    yield Hooked(driver, tmp_path)
    driver.process("kubeletplugin").stop()
    shutil.rmtree(hooks_folder(driver.data_dir), ignore_errors=True)


def test_containers_are_made_ready_by_the_copied_hook_and_each_keeps_its_version(
    hooked: Hooked, real_cluster: RealCluster, namespace: str
) -> None:
    hooked.serve("1.20.1")
    make_template(real_cluster, namespace)
    pod = gpu_pod("train")
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", "until [ -e /tmp/end ]; do sleep 0.1; done"]
    start(real_cluster, namespace, pod)
    claim = claim_of(real_cluster, namespace, "train")
    looks_right(hooked, real_cluster, namespace)

    hooked.serve("1.20.2")
    assert hooked.versions() == ["1.20.1", "1.20.2"], "the claim's spec names the older one"
    real_cluster.exec("train", ["touch", "/tmp/end"], namespace)
    wait_for(real_cluster.api, paths.pod("train", namespace), has_started_again)
    looks_right(hooked, real_cluster, namespace)

    real_cluster.api.delete(paths.pod("train", namespace))
    wait_released(hooked.driver, claim["metadata"]["uid"])
    hooked.serve("1.20.3")
    eventually("the old ones are gone", hooked.versions, lambda versions: versions == ["1.20.3"])


def has_started_again(pod: Object) -> bool:
    """Whether the pod's container runs for the second time."""
    (status,) = pod["status"]["containerStatuses"]
    return status["restartCount"] == 1 and "running" in status["state"]


def looks_right(hooked: Hooked, cluster: RealCluster, namespace: str) -> None:
    """See what the calls of the hook have made in the container."""

    def said(*command: str) -> str:
        return cluster.exec("train", list(command), namespace).strip()

    version, mounts = hooked.driver.machine.state.driver_version, said("cat", "/proc/mounts")
    assert said("readlink", f"{LIBRARIES}/libcuda.so.1") == f"libcuda.so.{version}"
    assert f" {LIBRARIES}/libcuda.so.{version} " in mounts
    assert f" {LIBRARIES}/libcuda.so.1 " not in mounts, "links are no mounts"
    assert f"{LIBRARIES}/libcuda.so.1" in said(
        "grep", "-a", "-o", f"{LIBRARIES}/libcuda.so.1", "/etc/ld.so.cache"
    )
    assert said("sh", "-c", "echo $NVIDIA_CTK_LIBCUDA_DIR") == LIBRARIES
    assert "EGLVisibleDGPUDevices" in said(
        "cat", "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    )
    (device,) = allocated(claim_of(cluster, namespace, "train"))
    pci = next(pci for pci in hooked.driver.machine.state.gpus if device.endswith(gpu_device_name(pci)))
    by_path = said("ls", "/dev/dri/by-path").split()
    assert by_path == [f"pci-{pci}-card", f"pci-{pci}-render"]
    for name in by_path:
        assert said("stat", "-L", "-c", "%F %a", f"/dev/dri/by-path/{name}") == "character special file 666"
