"""Pods that mean harm to MPS: one without rights that poses as a daemon, and the root of one with a share."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fakegpu.mps.client import PRIVILEGED, Connection, DaemonGone
from gpuctl.demo.driver_node import MPS
from tests.clusters import CommandFailed, DriverNode, Object, RealCluster
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_template, request, start
from tests.flow.mig_scene import end
from tests.flow.share_scene import CONTROL, PIPES, clients, daemon_pid, defaults, pipes_of, shared
from tests.gpus import CudaProcess, gpu_device_name

ONE_GPU = """version: v1
rules:
  - when: gpu.index == 0
    shared: {strategy: MPS, shares: 4}
  - offer: hidden
"""
SHM_MIB = 8
ALL_PROCESSES = ("--proc-root", "/proc")
QUARTER = (["25.0"], [f"{(81559 - 454) // 4 // 1024}G"])
POSE = f"""printf '#!/bin/sh\\nwhile true; do sleep 1; done\\n' >/own/{CONTROL}
chmod +x /own/{CONTROL}
exec /own/{CONTROL} -f"""


def attacker(name: str, command: str, **environment: str) -> Object:
    """A pod with no rights and no devices, whose root runs a shell command."""
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [{"name": "own", "mountPath": "/own"}],
    }
    volumes = [{"name": "own", "emptyDir": {}}]
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def processes_with(variable: str) -> list[int]:
    """The processes of this machine that have a variable, ``NAME=value``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def seen_by(pod: str) -> Path:
    """The root folder of a pod's container, through its own mounts; the pod has the variable WHO."""
    (pid, *_) = processes_with(f"WHO={pod}")
    return Path(f"/proc/{pid}/root")


def with_name(pod: Object) -> Object:
    """The pod, whose processes can be told by their variable WHO."""
    pod["spec"]["containers"][0]["env"] = [{"name": "WHO", "value": pod["metadata"]["name"]}]
    return pod


@contextmanager
def supervised(driver: DriverNode, *flags: str) -> Iterator[None]:
    """The node's supervisor runs with these flags inside the block."""
    driver.process(MPS).stop()
    driver.start_mps(*flags)
    try:
        yield
    finally:
        driver.process(MPS).stop()
        driver.start_mps()


@pytest.mark.parametrize("user", [0, 1000], ids=["root", "a user"])
def test_a_pod_that_looks_like_a_daemon_stops_none_and_is_taken_for_none(
    driver: DriverNode, real_cluster: RealCluster, namespace: str, user: int
) -> None:
    device = gpu_device_name(min(driver.machine.state.gpus))
    pipes = driver.mps_dir / device / "pipe"
    poses = {
        "elsewhere": attacker("elsewhere", POSE, CUDA_VISIBLE_DEVICES="GPU-", WHO="elsewhere"),
        "nowhere": attacker("nowhere", POSE, WHO="nowhere"),
        "here": attacker("here", POSE, CUDA_MPS_PIPE_DIRECTORY=str(pipes), WHO="here"),
    }
    with supervised(driver, *ALL_PROCESSES), shared(driver, namespace, ONE_GPU):
        for pod in poses.values():
            pod["spec"]["securityContext"] = {"runAsUser": user}
            start(real_cluster, namespace, pod)
        posing = [wait_posing(name) for name in poses]
        make_template(real_cluster, namespace, request(device_class="shared-mps"))
        start(real_cluster, namespace, gpu_pod("train"))
        assert pipes_of(driver, namespace, "train") == pipes
        with clients(driver, namespace, "train") as (limits,):
            assert limits.percentage == 25.0
        pid = daemon_pid(pipes)
        driver.process(MPS).kill()
        driver.start_mps(*ALL_PROCESSES)
        eventually(
            "another daemon has the limits", partial(limits_now, driver, pipes), lambda told: told == QUARTER
        )
        assert daemon_pid(pipes) != pid
        assert all(Path(f"/proc/{one}").exists() for one in posing), "and nobody was killed for it"
        end(real_cluster, namespace, "train")


def limits_now(driver: DriverNode, pipes: Path) -> tuple[list[str], list[str]] | None:
    """What the daemon lets any client have; None while none answers."""
    try:
        return defaults(driver, pipes)
    except subprocess.CalledProcessError:
        return None


def wait_posing(pod: str) -> int:
    """The process of a pod once it has the name and the arguments of a control daemon."""

    def found() -> int | None:
        for pid in processes_with(f"WHO={pod}"):
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if comm == CONTROL[:15] and b"-f" in arguments:
                return pid
        return None

    pid = eventually(f"{pod} poses as a daemon", found)
    assert pid is not None
    return pid


def refused(run: Callable[[], object]) -> str:
    """What a command in a container said when it failed."""
    with pytest.raises(CommandFailed) as error:
        run()
    return str(error.value)


def test_the_root_of_a_pod_with_a_share_harms_neither_the_daemon_nor_its_neighbour(
    driver: DriverNode, real_cluster: RealCluster, namespace: str
) -> None:
    with supervised(driver, "--shm-mib", str(SHM_MIB)), shared(driver, namespace, ONE_GPU):
        make_template(real_cluster, namespace, request(device_class="shared-mps"))
        for name in ("attacker", "neighbour"):
            start(real_cluster, namespace, with_name(gpu_pod(name)))
        pipes = pipes_of(driver, namespace, "attacker")
        before = daemon_pid(pipes), defaults(driver, pipes)

        def sh(command: str) -> str:
            return real_cluster.exec("attacker", ["sh", "-c", command], namespace)

        assert sh("id -u") == "0\n"
        assert sh(f"ls -A {PIPES}") == "control\n"
        assert sh("ls /usr/bin") == "nvidia-debugdump\nnvidia-persistenced\nnvidia-smi\n"
        for command in (
            f"rm {PIPES}/control",
            f"mv {PIPES}/control {PIPES}/other",
            f"ln -s /etc {PIPES}/link",
            f"touch {PIPES}/file",
            f"mkdir {PIPES}/folder",
            f"chmod 0 {PIPES}/control",
        ):
            assert "Read-only file system" in refused(partial(sh, command))
        assert "permission denied" in refused(lambda: sh(f"mount -o remount,rw {PIPES}"))
        cannot_command(driver, seen_by("attacker") / PIPES[1:])
        assert (daemon_pid(pipes), defaults(driver, pipes)) == before
        cannot_fill(driver, sh)
        with clients(driver, namespace, "neighbour") as (limits,):
            assert (limits.percentage, limits.pinned_mib) == (25.0, {"0": (81559 - 454) // 4})
        end(real_cluster, namespace, "attacker", "neighbour")


def cannot_command(driver: DriverNode, pipes: Path) -> None:
    """Whoever brings the control program along finds the socket of clients, which takes no command.

    ``pipes`` is the pipe directory as the container sees it, through the mount that it has.
    """
    with CudaProcess(pipes, process_id=4_300_001, user_id=os.getuid()) as client:
        assert client.limits.percentage == 25.0, "a client gets in"
    with pytest.raises(DaemonGone):
        Connection(pipes, PRIVILEGED)
    for command in ("quit -t 0", "set_default_active_thread_percentage 100", "terminate_client 1 2"):
        done = subprocess.run(
            [driver.folder / "driver" / "usr" / "bin" / CONTROL],
            input=f"{command}\n", capture_output=True, text=True, check=False, timeout=30,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
        )  # fmt: skip
        assert done.stdout == f"Permission denied: {command.split()[0]}\n"


def cannot_fill(driver: DriverNode, sh: Callable[[str], str]) -> None:
    """What the container may write to is memory of its daemon and clients, of a limited size."""
    free = os.statvfs(driver.mps_dir).f_bavail
    assert sh("ls -A /dev/shm") == "", "nothing of the node's processes is there"
    said = refused(lambda: sh("dd if=/dev/zero of=/dev/shm/all bs=1M count=64"))
    assert "No space left on device" in said
    assert int(sh("stat -c %s /dev/shm/all")) == SHM_MIB << 20
    assert abs(os.statvfs(driver.mps_dir).f_bavail - free) < SHM_MIB << 20 >> 12
    sh("rm /dev/shm/all")
