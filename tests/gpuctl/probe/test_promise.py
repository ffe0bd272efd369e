"""A promise is kept only by the claim's own devices, with the memory that they promise and not more."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.probe.answer import Device
from gpuctl.probe.promise import Promised, Verdict, judged, read_promises
from tests.clusters import commands
from tests.gpus import VISIBLE_NODES, ConfigError, FakeMachine

MIB = 1 << 20
GIB = 1 << 30
WHOLE = Promised("GPU-1", "gpu", None)
PARTITION = Promised("MIG-1", "mig", None)
LIMITED = Promised("GPU-1", "shared", "mps", 20 * GIB)
FOREIGN = "CUDA shows GPU-2, which the claim does not have"
MORE = "more than its limit of 20480 MiB"
LIMITED_GPU = "a share by mps, NVIDIA H100 (GPU-1)"
WITHOUT_MPS = "the process is no client of MPS on GPU-1, so no limit holds"
TURNS = Promised("GPU-1", "shared", "time-slicing")


def used(uuid: str = "GPU-1", got: int = 64 * MIB, kernel: str = "ok", *, mps: bool = False) -> Device:
    return Device(uuid, "NVIDIA H100", None, 80 * GIB, None, got, mps, kernel)


def metadata(folder: Path, **attributes: object) -> Path:
    """The file of a request, as the plugin writes it: twice, for two versions of the API."""
    told = {name: {"int" if isinstance(one, int) else "string": one} for name, one in attributes.items()}
    device = {"driver": "gpu.nvidia.com", "pool": "node", "name": "gpu", "attributes": told}
    line = json.dumps({"requests": [{"name": "gpu", "devices": [device]}]})
    file = folder / "resourceclaims/mine/gpu/gpu.nvidia.com-metadata.json"
    file.parent.mkdir(parents=True)
    file.write_text(f"{line}\n{line}\n")
    return file


@pytest.mark.parametrize(
    ("promise", "device", "line"),
    [
        (WHOLE, used(got=79 * GIB), "kept: a whole GPU, NVIDIA H100 (GPU-1), 80896 of 81920 MiB"),
        (LIMITED, used(got=19 * GIB, mps=True), f"kept: {LIMITED_GPU}, 19456 of 20480 MiB"),
        (TURNS, used(), "kept: a share by time-slicing, NVIDIA H100 (GPU-1)"),
        (WHOLE, used(got=70 * GIB), "NOT KEPT: it got 71680 MiB of GPU-1, and 81920 MiB are promised"),
        (WHOLE, used("GPU-2"), f"NOT KEPT: {FOREIGN}; CUDA does not show GPU-1"),
        (LIMITED, used(got=21 * GIB, mps=True), f"NOT KEPT: it got 21504 MiB of GPU-1, {MORE}"),
        (LIMITED, used(got=20 * GIB), f"NOT KEPT: {WITHOUT_MPS}"),
        (TURNS, used(kernel="it was not run"), "NOT KEPT: it was not run"),
    ],
)
def test_the_line_says_whether_a_promise_is_kept(promise: Promised, device: Device, line: str) -> None:
    assert judged([promise], [device], None) == Verdict(kept=line.startswith("kept"), line=line)


def test_of_two_partitions_one_is_seen_and_of_two_gpus_both() -> None:
    other = Promised("MIG-2", "mig", None)
    assert judged([PARTITION, other], [used("MIG-2", 80 * GIB)], None).kept
    second = Promised("GPU-2", "gpu", None)
    assert judged([WHOLE, second], [used(got=80 * GIB)], None).line.endswith("CUDA does not show GPU-2")


def test_the_files_say_what_is_promised(tmp_path: Path) -> None:
    file = metadata(
        tmp_path, uuid="GPU-1", type="shared", sharing="mps", pinnedMemoryMiB=4096,
        memoryLimitBytes=5 * GIB,
    )  # fmt: skip
    promised = (Promised("GPU-1", "shared", "mps", 4 * GIB),)
    assert read_promises([tmp_path]) == read_promises([file]) == promised
    assert promised[0].may_be_filled


@pytest.mark.parametrize("text", ["", "{}", '{"requests": []}', '{"requests": [{"devices": [{}]}]}'])
def test_files_that_promise_nothing_are_refused(tmp_path: Path, text: str) -> None:
    file = metadata(tmp_path)
    file.write_text(text)
    with pytest.raises(ConfigError, match="metadata"):
        read_promises([tmp_path])


def test_the_command_ends_with_1_if_the_promise_is_not_kept(tmp_path: Path) -> None:
    machine = FakeMachine.open(f"l4-quad@{tmp_path / 'state'}")
    file = metadata(tmp_path, uuid=machine.uuid(machine.pci(1)), type="gpu", sharing="none")
    words = ["probe", "--metadata", str(file), "--cuda", str(machine.flag)]
    own = CliRunner().invoke(commands, words, env={VISIBLE_NODES: "/dev/nvidia1"})
    assert (own.exit_code, own.output[:5]) == (0, "kept:")
    every = CliRunner().invoke(commands, words)
    assert (every.exit_code, every.output[:9]) == (3, "NOT KEPT:")
