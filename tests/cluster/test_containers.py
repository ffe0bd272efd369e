"""What only a real container shows: device nodes that can be opened, and the driver's files behind mounts."""

from tests.clusters import DriverNode, RealCluster
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, start


def test_a_container_can_use_what_it_was_given(
    driver: DriverNode, real_cluster: RealCluster, namespace: str
) -> None:
    make_template(real_cluster, namespace)
    start(real_cluster, namespace, gpu_pod("train"))

    for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"):
        said = real_cluster.exec("train", ["sh", "-c", f"test -c {path} && echo yes"], namespace)
        assert said == "yes\n"
    library = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{driver.machine.state.driver_version}"
    mounts = real_cluster.exec("train", ["cat", "/proc/mounts"], namespace)
    assert f" {library} ext4 ro,nosuid,nodev" in mounts.replace(" overlay ", " ext4 ")
    soname = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    assert real_cluster.exec("train", ["cmp", library, soname], namespace) == ""
    (device,) = allocated(claim_of(real_cluster, namespace, "train"))
    pci = next(pci for pci in driver.machine.state.gpus if device.endswith(_tail(pci)))
    listed = real_cluster.exec("train", ["/usr/bin/nvidia-smi"], namespace)
    assert driver.machine.uuid(pci) in listed
    assert listed.count("GPU-") == 1


def _tail(pci: object) -> str:
    return str(pci).replace(":", "-").replace(".", "-")
