"""The fake machine: what is done to it shows in NVML at once, in every process, and goes away again."""

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakegpu.machine.state import MachineState
from tests.examples import examples
from tests.gpus import ConfigError, FakeMachine, PciAddress


def test_changes_of_several_processes_do_not_undo_each_other(tmp_path: Path) -> None:
    spec = f"fake:t4@{tmp_path / 'state.json'}"
    machine = FakeMachine.open(spec)
    program = (
        "from fakegpu.machine.fake_machine import FakeMachine\n"
        f"machine = FakeMachine.open({spec!r})\n"
        "print('ready', flush=True)\ninput()\n"
        "for _ in range(20):\n    machine.fail('uuid')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert [fault.number for fault in machine.state.faults] == list(range(1, 61))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "machine": "t4"}', "\x00"])
def test_a_broken_state_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(text)
    with pytest.raises(ConfigError, match=r"state\.json"):
        FakeMachine.open(f"fake:t4@{state}")


def _draw_all_fields(kind: object, known: set[object]) -> None:
    """Have Hypothesis draw fields with defaults as well, of a dataclass and of those inside."""
    if isinstance(kind, type) and is_dataclass(kind) and kind not in known:
        known.add(kind)
        for hint in get_type_hints(kind).values():
            _draw_all_fields(hint, known)
        st.register_type_strategy(kind, st.builds(kind, **{field.name: ... for field in fields(kind)}))
    for inner in get_args(kind):
        _draw_all_fields(inner, known)


addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)
st.register_type_strategy(PciAddress, addresses)
st.register_type_strategy(float, st.floats(allow_nan=False))  # which is not equal to itself
_draw_all_fields(MachineState, {PciAddress})


@settings(max_examples=examples(20))
@given(st.from_type(MachineState))
def test_a_state_is_read_back_as_it_was_written(state: MachineState) -> None:
    assert MachineState.from_json(state.to_json("m"), "m") == state
