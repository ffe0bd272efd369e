"""MPS daemons of others are found by what /proc says of them, and named with the way to end them."""

import os
import signal
from pathlib import Path

import pytest

from kubeletplugin.sharing.mps.daemon_keeper import refuse_foreign_daemon
from kubeletplugin.sharing.mps.processes import daemons
from tests import needs
from tests.gpus import ClaimBlocked
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, MpsScene, mps_process
from tests.plugin import MpsDaemon, end_left_over, mps_processes

ALL, FEW = 0x1FFFFFFFFFF, 0xA80425FB  # the capabilities of a privileged container, and of any other
HOST_USERS, POD_USERS = "user:[4026531837]", "user:[4026532999]"
OWN, POD = "0::/system.slice/mps.service\n", "0::/kubepods.slice/pod17/container\n"
GPU, OTHER_GPU = "GPU-8a3c0f1e-0000-4000-8000-000000000001", "GPU-77777777-0000-4000-8000-000000000002"
DAEMON = MpsDaemon("gpu-0000-8a-00-0", (GPU,))
CONTROL = "nvidia-cuda-mps-control"


class Proc:
    """A /proc with processes of the test's making."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._identify(folder / "self", OWN, ALL, HOST_USERS, 0)

    def add(
        self,
        pid: int,
        *arguments: str,
        comm: str = "nvidia-cuda-mps",
        parent: int = 1,
        environment: dict[str, str] | None = None,
        cgroup: str = POD,
        capabilities: int = ALL,
        users: str = HOST_USERS,
        user: int = 0,
    ) -> Path:
        folder = self.path / str(pid)
        self._identify(folder, cgroup, capabilities, users, user)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "stat").write_text(f"{pid} ({comm}) S {parent} {pid} {pid} 0 -1")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in arguments))
        (folder / "environ").write_text(
            "".join(f"{name}={value}\0" for name, value in (environment or {}).items())
        )
        return folder

    def _identify(self, folder: Path, cgroup: str, capabilities: int, users: str, user: int) -> None:
        (folder / "ns").mkdir(parents=True)
        (folder / "cgroup").write_text(cgroup)
        rights = f"CapInh:\t{0:016x}\nCapEff:\t{capabilities:016x}\nCapBnd:\t{ALL:016x}\n"
        (folder / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n{rights}")
        (folder / "ns" / "user").symlink_to(users)

    def gpu(self, uuid: str, minor: int) -> None:
        file = self.path / f"driver/nvidia/gpus/0000:0{minor}:00.0/information"
        file.parent.mkdir(parents=True)
        file.write_text(f"Model: \t\t NVIDIA A30\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def refuse(proc: Proc, daemon: MpsDaemon = DAEMON) -> None:
    refuse_foreign_daemon(daemon, proc.path)


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        (None, "serves all GPUs that it sees"),
        (GPU, f"serves {GPU}"),
        ("GPU-8a3c", f"serves {GPU}"),
        (f"{OTHER_GPU},{GPU}", f"serves {GPU}"),
        ("1,0", "may serve the same GPU: its CUDA_VISIBLE_DEVICES is 1,0"),
    ],
)
def test_a_daemon_that_may_serve_the_gpu_is_named(proc: Proc, visible: str | None, words: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    environment["CUDA_MPS_PIPE_DIRECTORY"] = "/var/mps"
    proc.add(17, f"/usr/bin/{CONTROL}", "-d", environment=environment)
    with pytest.raises(ClaimBlocked) as caught:
        refuse(proc)
    assert f"another MPS control daemon {words}: process 17, pipe directory /var/mps" in caught.value.what
    assert f"echo quit | CUDA_MPS_PIPE_DIRECTORY=/var/mps {CONTROL}" in caught.value.way_out


def test_the_pipe_directory_is_the_default_where_none_is_named(proc: Proc) -> None:
    proc.add(17, CONTROL, "-d")
    with pytest.raises(ClaimBlocked, match="process 17, pipe directory /tmp/nvidia-mps"):
        refuse(proc)


@pytest.mark.parametrize("visible", [OTHER_GPU, "", "GPU-9"])
def test_a_daemon_for_other_gpus_is_left_alone(proc: Proc, visible: str) -> None:
    proc.add(17, CONTROL, "-d", environment={"CUDA_VISIBLE_DEVICES": visible})
    refuse(proc)


@pytest.mark.parametrize("visible", ["GPU-", GPU, "0", None])
@pytest.mark.parametrize(
    ("capabilities", "users"),
    [(FEW, HOST_USERS), (0, HOST_USERS), (ALL, POD_USERS)],
    ids=["root of a pod", "another user of a pod", "root of a user namespace"],
)
def test_a_pod_without_rights_over_the_node_cannot_keep_a_daemon_from_starting(
    proc: Proc, capabilities: int, users: str, visible: str | None
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    proc.add(17, CONTROL, "-f", environment=environment, capabilities=capabilities, users=users)
    refuse(proc)


def test_what_a_pod_says_of_its_process_is_not_even_read(proc: Proc) -> None:
    """A process chooses how long its environment is, and a pod how many it has."""
    folder = proc.add(17, CONTROL, "-d", capabilities=FEW)
    for name in ("environ", "cmdline"):
        (folder / name).unlink()
        os.mkfifo(folder / name)  # whoever reads it waits
    refuse(proc)


def test_of_a_process_with_rights_the_beginning_of_its_environment_is_read(proc: Proc) -> None:
    endless = {"CUDA_MPS_PIPE_DIRECTORY": "/var/mps", "FILL": "x" * (4 << 20)}
    proc.add(17, CONTROL, "-d", environment=endless)
    (found,) = mps_processes(proc.path)
    assert found.pipes == "/var/mps"
    assert len((found.environment or {})["FILL"]) < 1 << 20


def test_what_cannot_be_seen_of_a_process_is_no_right_over_the_node(proc: Proc) -> None:
    (proc.add(17, CONTROL, "-d") / "ns" / "user").unlink()
    (proc.add(18, CONTROL, "-d") / "status").unlink()
    refuse(proc)


def test_what_pretends_to_be_left_of_our_daemon_is_not_ours_to_kill(proc: Proc) -> None:
    """Nobody gets into the supervisor's control group without rights over the node."""
    pipes = "/run/mps/gpu/pipe"
    with mps_process("nvidia-cuda-mps-server", pipes=pipes) as left:
        folder = proc.add(left.pid, "nvidia-cuda-mps-server", environment={"CUDA_MPS_PIPE_DIRECTORY": pipes})
        end_left_over(Path(pipes), proc.path)
        assert left.poll() is None
        (folder / "cgroup").write_text(OWN)
        end_left_over(Path(pipes), proc.path)
        assert left.wait(DEADLINE_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("where", ["mps/gpu/pipe", "mps/other/pipe"])
def test_a_daemon_in_a_pipe_directory_of_ours_that_we_did_not_start_is_foreign(
    proc: Proc, where: str
) -> None:
    """Whoever started it has rights over the node, or it is another of our daemons on the same GPU."""
    own = str(proc.path / where)
    proc.add(17, CONTROL, "-f", environment={"CUDA_MPS_PIPE_DIRECTORY": own, "CUDA_VISIBLE_DEVICES": GPU})
    with pytest.raises(ClaimBlocked, match=f"serves {GPU}: process 17, pipe directory {own}"):
        refuse(proc)


def test_programs_that_are_no_daemon_are_left_alone(proc: Proc) -> None:
    proc.add(17, "nvidia-cuda-mps-server")
    proc.add(18, CONTROL)  # a command that is being given
    proc.add(19, "vim", f"/usr/bin/{CONTROL}", "-d", comm="vim")
    proc.add(20, CONTROL, "-d", comm="bash")
    refuse(proc)


def test_what_a_daemon_forked_is_no_second_one(proc: Proc) -> None:
    proc.add(17, CONTROL, "-d")
    proc.add(18, CONTROL, "-d", parent=17)
    assert [process.pid for process in daemons(mps_processes(proc.path))] == [17]


def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(proc: Proc) -> None:
    (proc.add(17, CONTROL, "-d") / "cmdline").unlink()
    (proc.add(18, CONTROL, "-d") / "stat").write_text("")
    refuse(proc)


def test_a_daemon_whose_environment_is_hidden_may_serve_anything(proc: Proc) -> None:
    environ = proc.add(17, CONTROL, "-d") / "environ"
    environ.unlink()
    environ.mkdir()  # cannot be read, whoever runs the test
    with pytest.raises(ClaimBlocked, match="its environment cannot be read"):
        refuse(proc)


@pytest.mark.parametrize(("node", "refused"), [("nvidia3", True), ("nvidia2", False)])
def test_a_daemon_in_a_container_serves_the_gpus_that_are_there(proc: Proc, node: str, refused: bool) -> None:
    """A pod with a GPU of its own may run MPS on it without naming a GPU; that concerns no other GPU."""
    proc.gpu(GPU, 3)
    # One that has just left the bus cannot be read.
    (proc.path / "driver/nvidia/gpus/0000:04:00.0/information").mkdir(parents=True)
    nodes = proc.add(17, CONTROL, "-d") / "root/dev"
    nodes.mkdir(parents=True)
    (nodes / node).touch()
    if refused:
        with pytest.raises(ClaimBlocked, match="process 17"):
            refuse(proc)
    else:
        refuse(proc)


def test_of_a_mig_device_it_is_not_known_which_containers_see_it(proc: Proc) -> None:
    proc.gpu(GPU, 3)
    proc.add(17, CONTROL, "-d")
    with pytest.raises(ClaimBlocked, match="process 17"):
        refuse(proc, MpsDaemon("mig", ("MIG-1",)))


def test_a_proc_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClaimBlocked, match="cannot read"):
        refuse_foreign_daemon(DAEMON, tmp_path / "none")


@needs.MOUNTS
def test_a_real_daemon_of_somebody_else_keeps_ours_from_starting(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(name="theirs"), DEADLINE_SECONDS)
    pid = mps.pid("theirs")
    (mps.proc / str(pid)).symlink_to(f"/proc/{pid}")
    (mps.proc / "self").symlink_to("/proc/self")
    with pytest.raises(ClaimBlocked, match=f"process {pid}, pipe directory {mps.folder('theirs').pipes}"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    supervisor.stop("theirs", DEADLINE_SECONDS)
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
