"""The state of a fake machine survives its file, whatever it is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.state import MachineState
from tests.examples import examples


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


@settings(max_examples=examples(60))
@given(st.from_type(MachineState))
def test_a_state_is_read_back_as_it_was_written(state: MachineState) -> None:
    assert MachineState.from_json(state.to_json("m"), "m") == state
