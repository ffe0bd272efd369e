"""Whatever processes say of themselves, they keep no daemon of ours from starting and are taken for none."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletplugin.sharing.mps.daemon_keeper import refuse_foreign_daemon
from kubeletplugin.sharing.mps.processes import CONTROL, PIPE_DIRECTORY, VISIBLE_DEVICES
from tests.clusters import Object
from tests.examples import examples
from tests.plugin import MpsDaemon, mps_processes

PIPES = Path("/run/gpu.nvidia.com/mps/gpu-0000-1b-00-0/pipe")
DAEMON = MpsDaemon("gpu-0000-1b-00-0", ("GPU-1",))
HOST = "user:[4026531837]"

WORDS = st.sampled_from([CONTROL, f"/usr/bin/{CONTROL}", "-f", "-d", "-M", "", "\n", "x" * 4000])
VARIABLES = st.tuples(
    st.sampled_from([PIPE_DIRECTORY, VISIBLE_DEVICES, "", "A=B"]),
    st.sampled_from([str(PIPES), "GPU-", "GPU-1", "0", "", "/../..", "\udcff", "9" * 5000]),
)
BYTES = st.binary(max_size=64)
PROCESSES = st.fixed_dictionaries(
    {},
    optional={
        "comm": st.just(CONTROL[:15].encode() + b"\n") | BYTES,
        "cmdline": st.lists(WORDS, max_size=5).map(lambda words: "\0".join(words).encode()) | BYTES,
        "environ": st.lists(VARIABLES, max_size=4).map(
            lambda pairs: "\0".join(f"{key}={value}" for key, value in pairs).encode(errors="surrogateescape")
        )
        | BYTES,
        "stat": st.sampled_from([b"7 (a) b) c) S 1 7", b"7 (x", b"7 (x) S -1", b""]) | BYTES,
        "cgroup": st.sampled_from([b"0::/kubepods/pod1\n", b"0::/../..\n", b""]) | BYTES,
        "status": st.sampled_from(
            [
                b"Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n",
                b"Name:\tUid:\t0\t0\nUid:\t1000\t1000\t0\t0\nCapEff:\t0000000000000000\n",
                b"Uid:\t0\t0\t0\t0\nCapEff:\tffffffffffdfffff\n",
            ]
        )
        | BYTES,
        "user": st.sampled_from([HOST, "user:[4026532999]", "../../../etc", "user:[]"]),
    },
)
"""Processes of pods that have no rights over the node: all capabilities but CAP_SYS_ADMIN at most."""


def lay(proc: Path, processes: list[Object]) -> None:
    """A /proc with the supervisor's own process and these."""
    shutil.rmtree(proc, ignore_errors=True)
    own = proc / "self"
    (own / "ns").mkdir(parents=True)
    (own / "cgroup").write_text("0::/system.slice/gpu-dra-mps.service\n")
    (own / "status").write_text("Name:\tpython\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")
    (own / "ns" / "user").symlink_to(HOST)
    for pid, process in enumerate(processes, start=100):
        folder = proc / str(pid)
        (folder / "ns").mkdir(parents=True)
        for name, content in process.items():
            if name == "user":
                (folder / "ns" / "user").symlink_to(content)
            else:
                (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def proc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proc") / "proc"


@settings(max_examples=examples(200))
@given(processes=st.lists(PROCESSES, max_size=4))
def test_processes_of_pods_are_neither_ours_nor_in_the_way(proc: Path, processes: list[Object]) -> None:
    lay(proc, processes)

    refuse_foreign_daemon(DAEMON, proc)
    assert not any(found.is_privileged or found.in_our_group for found in mps_processes(proc))
