"""The state of a fake machine survives its file, whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driver.mig import Placement
from driver.model import PciAddress
from driver.nvml.fake_mig_state import ComputeInstanceState, GpuInstanceState, MigState
from driver.nvml.fake_state import Fault, GpuState, MachineState

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)
pids = st.lists(st.integers(1, 2**22)).map(tuple)
placements = st.builds(Placement, st.integers(0, 7), st.integers(1, 8))
ids = st.integers(0, 14)
compute_instances = st.builds(ComputeInstanceState, ids, ids, placements, pids)
gpu_instances = st.builds(GpuInstanceState, ids, ids, placements, st.lists(compute_instances).map(tuple))
mig_states = st.builds(MigState, st.booleans(), st.booleans(), st.lists(gpu_instances).map(tuple))
gpus = st.builds(
    GpuState,
    minor=st.integers(0, 31),
    board=st.integers(0, 9),
    present=st.booleans(),
    lost=st.booleans(),
    process_ids=pids,
    mig=mig_states,
)
faults = st.builds(
    Fault,
    number=st.integers(1),
    call=st.text(),
    pci=st.none() | addresses,
    code=st.none() | st.integers(),
    times=st.none() | st.integers(1),
    seconds=st.none() | st.floats(0, 10),
    after=st.booleans(),
)
states = st.builds(
    MachineState,
    gpus=st.dictionaries(addresses, gpus),
    driver_version=st.text(),
    cuda_driver_version=st.text(),
    driver_loaded=st.booleans(),
    session=st.integers(1),
    faults=st.lists(faults).map(tuple),
    next_fault=st.integers(1),
    driver_roots=st.lists(st.text()).map(tuple),
)


@given(states)
def test_a_state_is_read_back_as_it_was_written(state: MachineState) -> None:
    assert MachineState.from_json(state.to_json("m"), "m") == state
