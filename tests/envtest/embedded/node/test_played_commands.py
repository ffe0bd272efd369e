"""What containers print: a few commands are played, and of all others the log says that they are not run."""

from collections.abc import Sequence

import pytest

from envtest.embedded.node.played_commands import Command, Player
from tests.clusters import GpuPrograms

GPU = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n"
MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/p", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "HOME": "/root"}


def smi(program: str, arguments: Sequence[str]) -> tuple[int, str] | None:
    """The one program that a container was given."""
    return (0, GPU) if (program, list(arguments)) == ("nvidia-smi", ["-L"]) else None


class Played:
    """What became of a command: what it printed, and for how long it slept."""

    def __init__(self, *words: str, env: dict[str, str] | None = None, ends: bool = False) -> None:
        self.text = ""
        self.slept: list[float] = []
        self._ends = ends
        self.code = Player(smi, GpuPrograms(), self._write, self._wait).play(Command(words, env or MPS))

    def _write(self, text: str) -> None:
        self.text += text

    def _wait(self, seconds: float) -> bool:
        self.slept.append(seconds)
        return self._ends


def script(text: str) -> str:
    return Played("sh", "-c", text).text


def test_the_commands_of_the_samples_are_played() -> None:
    command = "nvidia-smi -L && env | grep CUDA_MPS && sleep infinity"
    lines = "CUDA_MPS_PIPE_DIRECTORY=/p\nCUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n"

    played = Played("sh", "-c", command, ends=True)

    assert played.text == GPU + lines
    assert played.slept == [float("inf")]
    assert script("nvidia-smi -L && exec sleep infinity") == GPU
    assert Played("nvidia-smi", "-L").text == GPU


@pytest.mark.parametrize("program", ["gpu-dra-kubeletplugin", "/opt/gpu-dra/gpu-dra-page"])
def test_a_program_of_the_driver_goes_on_until_its_container_ends(program: str) -> None:
    played = Played(program, "--metrics-addr=:9402", ends=True)

    assert (played.slept, played.text) == ([float("inf")], "")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "the image's own command"),
        (("python3", "train.py"), "python3 train.py"),
        (("sh", "-c", "echo before; rm -rf /data; echo after"), "rm -rf /data"),
        (("sh", "-c", "echo $(date)"), "a script with $"),
        (("sh", "-c", f"exit {'1' * 5000}"), f"exit {'1' * 5000}"),
        (("sh", "-c", "ls *.py"), "a script with *.py"),
        (("sh", "-c", "echo '$HOME'"), "a script with $HOME and single quotes"),
        (("sh", "-c", "echo 'open"), "a script (No closing quotation)"),
        (("sh", "-c", "nvidia-smi -L & wait"), "a script with &"),
        (("sleep", "later"), "sleep later"),
        (("grep", "-r", "x"), "grep -r x"),
        (("sh", "-c", "echo x | grep 'a|*|'"), None),
    ],
)
def test_everything_else_is_said_not_to_be_run(words: tuple[str, ...], what: str | None) -> None:
    text = Played(*words).text

    if what is not None:
        names = "nvidia-smi alone or with -L or topo -m"
        played = f"echo, env, printenv, grep, cat, sleep, true, false, exit, exec, gpuctl probe, {names}"
        assert text.endswith(f"embedded cluster: {what} is not run here; played are {played}")
    assert "is not run here" in text
    assert "after" not in text
    assert Played(*words).code is None
