"""The real cluster keeps its promises: nodes and pods run, parts restart, nothing is left behind."""

import http.client
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from envtest.client.errors import ApiUnreachable, ClusterError, NotReady
from envtest.real import cgroups
from envtest.real.assets import ASSETS_VARIABLE
from envtest.real.build import SCHEDULER_ALONE
from envtest.real.nodes import is_ready
from envtest.real.slots import PORT_NAMES
from envtest.real.startup import start_cluster as start_cluster_in
from tests.api.written import slice_of
from tests.cluster.objects import run_pod, sleeper
from tests.clusters import PACKAGE_ROOT, CommandFailed, RealCluster, find_assets, paths, wait_gone
from tests.eventually import eventually

CLEANING_SECONDS = 30.0
# Starts a cluster with a running pod, says where, and waits to be killed.
HOLDER = """
from envtest.client import paths
from envtest.client.waiting import wait_for
from envtest.real.startup import start_cluster
import json, sys
cluster = start_cluster(kubernetes=sys.argv[1])
cluster.api.create(json.loads(sys.argv[2]))
wait_for(cluster.api, paths.pod("sleeper"), lambda pod: pod["status"].get("phase") == "Running")
print(cluster.folder, cluster.described.slot.cgroup_prefix, flush=True)
sys.stdin.read()
"""


def processes_naming(folder: str) -> list[int]:
    """The processes of this machine that have a folder in their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if folder.encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def network_links() -> set[str]:
    """The names of this machine's network interfaces."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def test_node_is_ready_and_runs_the_version_that_was_asked_for(
    real_cluster: RealCluster, kubernetes: str
) -> None:
    """The node is Ready, and its kubelet, the API server and the scheduler report the minor version."""
    node = real_cluster.api.get(paths.node("node-0"))

    assert is_ready(node)
    others = SCHEDULER_ALONE.get(kubernetes, kubernetes)
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith(f"v{others}.")
    assert real_cluster.api.get("/version")["gitVersion"].startswith(f"v{others}.")
    scheduler = [str(find_assets(kubernetes).binary("kube-scheduler")), "--version"]
    told = subprocess.run(scheduler, capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"Kubernetes v{kubernetes}.")


def test_pod_runs_and_takes_commands(real_cluster: RealCluster, namespace: str) -> None:
    """exec returns stdout, and says how a command failed; the pod's log can be read."""
    pod = sleeper()
    pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", "echo started; sleep 1000"]
    run_pod(real_cluster, namespace, pod)

    assert real_cluster.exec("sleeper", ["/bin/echo", "a b"], namespace) == "a b\n"
    with pytest.raises(CommandFailed, match="no such thing") as caught:
        real_cluster.exec("sleeper", ["sh", "-c", "echo no such thing >&2; exit 3"], namespace)
    assert caught.value.returncode == 3
    assert real_cluster.api.text(f"{paths.pod('sleeper', namespace)}/log") == "started\n"


def test_command_in_a_container_that_does_not_run_is_refused(
    real_cluster: RealCluster, namespace: str
) -> None:
    """exec says that the container is not started, and names the pod."""
    real_cluster.api.create(sleeper("unplaced", nodeSelector={"no": "where"}), namespace)

    with pytest.raises(ClusterError, match=f"{namespace}/unplaced is not started"):
        real_cluster.exec("unplaced", ["true"], namespace)


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGKILL])
def test_kubelet_restart_keeps_pods_and_wipes_slices(
    real_cluster: RealCluster, namespace: str, stop_signal: signal.Signals
) -> None:
    """A kubelet that comes back has a new process, its pods still run, and it deleted the slices."""
    run_pod(real_cluster, namespace, sleeper())
    real_cluster.api.apply(slice_of("node-0"))
    before = real_cluster.kubelet(0).host_pid

    real_cluster.restart_kubelet(0, stop_signal)

    assert real_cluster.kubelet(0).host_pid != before
    wait_gone(real_cluster.api, paths.resource_slice("node-0-gpu"))
    assert real_cluster.exec("sleeper", ["echo", "alive"], namespace) == "alive\n"


def test_api_server_comes_back_with_its_objects(real_cluster: RealCluster, namespace: str) -> None:
    """While it is stopped nobody answers; then the same client finds the same objects."""
    before = real_cluster.api.create(sleeper("bystander", nodeSelector={"no": "where"}), namespace)
    path = paths.pod("bystander", namespace)

    real_cluster.stop_api_server()
    with pytest.raises(ApiUnreachable):
        real_cluster.api.get(path)
    real_cluster.start_api_server()

    assert real_cluster.api.get(path)["metadata"]["uid"] == before["metadata"]["uid"]


def test_two_clusters_at_once_do_not_meet(
    real_cluster: RealCluster, namespace: str, start_cluster: Callable[[int], RealCluster]
) -> None:
    """A second cluster of two nodes runs pods with addresses of their own, and goes away alone."""
    run_pod(real_cluster, namespace, sleeper())
    other = start_cluster(2)
    for node in ("node-0", "node-1"):
        run_pod(other, "default", sleeper(f"on-{node}", nodeName=node))

    pods = [real_cluster.api.get(paths.pod("sleeper", namespace)), *other.api.list_objects(paths.pod())]
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    assert len(real_cluster.api.list_objects(paths.node())) == 1
    other.close()
    assert not other.folder.exists()
    assert real_cluster.exec("sleeper", ["echo", "alive"], namespace) == "alive\n"


def test_nobody_on_this_machine_is_answered_without_a_token(real_cluster: RealCluster) -> None:
    """Every user reaches the ports and the abstract names of sockets; the folder is root's alone."""
    assert real_cluster.folder.stat().st_mode & 0o077 == 0
    ports, abstract = listening(processes_naming(str(real_cluster.folder)))
    assert abstract == set()
    codes = {port: code_for_a_stranger(port) for port in ports}
    slot = real_cluster.described.slot
    kubelets = set(map(slot.kubelet_port, range(len(real_cluster.nodes))))
    # Containerd's port takes only streams that the kubelet has asked for, each at a path with a secret.
    streams = {port: code for port, code in codes.items() if port not in slot.ports}
    assert set(streams.values()) == {404}, streams
    assert codes.keys() - streams.keys() == {*map(slot.port, PORT_NAMES), *kubelets}
    assert {code for port, code in codes.items() if port not in streams} <= {401, 403}


def listening(process_ids: list[int]) -> tuple[set[int], set[str]]:
    """The TCP ports and the abstract names at which the processes listen."""
    held = set()
    for path in (path for pid in process_ids for path in Path(f"/proc/{pid}/fd").iterdir()):
        with suppress(FileNotFoundError):
            held.add(str(path.readlink()).removeprefix("socket:[").removesuffix("]"))
    tcp = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    # Of connections the state is 0A, and of sockets a flag, where they are waited for.
    ports = {
        int(row[1].rpartition(":")[2], 16) for row in map(str.split, tcp) if row[3] == "0A" and row[9] in held
    }
    names = [line.split() for line in Path("/proc/net/unix").read_text().splitlines() if "@" in line]
    return ports, {row[7] for row in names if row[3] == "00010000" and row[6] in held}


def code_for_a_stranger(port: int) -> int:
    """What who shows no credentials is answered at a port, with TLS or without."""
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - a stranger checks nothing
    for connection in (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context),
        http.client.HTTPConnection("127.0.0.1", port, timeout=10),
    ):
        with closing(connection), suppress(ssl.SSLError):
            connection.request("GET", "/metrics")
            return connection.getresponse().status
    raise AssertionError(f"nobody speaks HTTP at port {port}")


def test_audit_tells_who_wrote_what(real_cluster: RealCluster) -> None:
    """Every answered request is an audit event with its user, verb and object."""
    real_cluster.api.apply(slice_of("audited"))
    real_cluster.api.delete(paths.resource_slice("audited-gpu"))

    verbs = [
        event["verb"]
        for event in real_cluster.audit_events()
        if event.get("objectRef", {}).get("name") == "audited-gpu" and event["user"]["username"] == "admin"
    ]
    assert verbs == ["patch", "delete"]


def test_process_of_the_cluster_can_be_stopped_killed_and_started_again(real_cluster: RealCluster) -> None:
    """A process by name: its status, its log over restarts, and no second one of the same name."""
    script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"
    first = real_cluster.processes.start("stand-in", ["sh", "-c", script])
    eventually("it runs", lambda: first.log, lambda log: log == "up\n")
    assert first.returncode is None
    with pytest.raises(ClusterError, match="stand-in runs already"):
        real_cluster.processes.start("stand-in", ["true"])

    assert first.stop() == 7
    again = real_cluster.processes.start("stand-in", ["sh", "-c", "echo $MARK"], {"MARK": "again"})
    assert again.wait() == 0
    assert again.log == "up\nagain\n"


def test_nothing_is_left_after_the_owner_is_killed(kubernetes: str) -> None:
    """After kill -9 of the owner: no process, mount, socket, file, control group or interface."""
    links = network_links()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kubernetes, json.dumps(sleeper())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PACKAGE_ROOT,
    )
    with holder:
        assert holder.stdout is not None
        folder, prefix = holder.stdout.readline().split()
        handles = [os.pidfd_open(pid) for pid in processes_naming(folder)]
        assert len(handles) > 8, "the cluster's processes are found by its folder"
        assert f" {folder}" in Path(f"/proc/{processes_naming(folder)[-1]}/mounts").read_text()
        holder.kill()

    for handle in handles:
        assert select.select([handle], [], [], CLEANING_SECONDS)[0], "a process lives on"
        os.close(handle)
    assert processes_naming(folder) == []
    assert folder not in Path("/proc/mounts").read_text()
    assert not Path(folder).exists()
    assert [p for h in cgroups.hierarchies() for p in h.glob(f"{prefix}*")] == []
    eventually("its network interfaces are gone", network_links, lambda left: left <= links)


def test_failed_start_names_the_component_and_leaves_nothing(
    kubernetes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster whose etcd cannot run says so with the end of its log, and removes its folder."""
    for binary in find_assets(kubernetes).folder.iterdir():
        (tmp_path / binary.name).symlink_to(binary.resolve())
    etcd = tmp_path / "etcd"
    etcd.unlink()
    etcd.write_text("#!/bin/sh\necho the disk is full >&2\nexit 3\n")
    etcd.chmod(0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    folder = Path(tempfile.mkdtemp(prefix="k"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    with pytest.raises(NotReady, match="etcd ended with status 3:\nthe disk is full"):
        start_cluster_in(kubernetes=kubernetes)

    assert list(folder.iterdir()) == []
    folder.rmdir()
    assert processes_naming(str(folder)) == []
