"""The state of a fake machine survives its file, whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driver.nvml.health.calls import EccErrors, FabricHealth, GpuEvent, RemappedRows
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from fakegpu.health.state import EventLog, FakeEvent, GpuHealth
from fakegpu.machine.faults import CallFault, MpsFault
from fakegpu.machine.mig_state import ComputeInstanceState, GpuInstanceState, MigState
from fakegpu.machine.state import GpuState, MachineState
from fakegpu.memory.state import Accounting, CudaClient, GpuMemory, GroupLimits
from fakegpu.use.state import GpuUse, PartitionUse, ProcessState

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)
pids = st.lists(st.integers(1, 2**22)).map(tuple)
placements = st.builds(Placement, st.integers(0, 7), st.integers(1, 8))
ids = st.integers(0, 14)
compute_instances = st.builds(ComputeInstanceState, ids, ids, placements, pids)
gpu_instances = st.builds(GpuInstanceState, ids, ids, placements, st.lists(compute_instances).map(tuple))
mig_states = st.builds(MigState, st.booleans(), st.booleans(), st.lists(gpu_instances).map(tuple))
byte_counts = st.integers(0, 2**64 - 1)
limits = st.builds(GroupLimits, st.text(), st.integers(0), byte_counts, byte_counts)
clients = st.builds(
    CudaClient, st.integers(0), st.text(), st.integers(0), byte_counts, st.none() | st.integers(1)
)
memories = st.builds(GpuMemory, st.lists(limits).map(tuple), st.lists(clients).map(tuple))
counts = st.integers(0, 2**40)
healths = st.builds(
    GpuHealth,
    recovery_action=st.sampled_from([None, "none", "reset"]),
    rows=st.builds(RemappedRows, counts, counts, pending=st.booleans(), failed=st.booleans()),
    page_pending=st.booleans(),
    unrepairable=st.booleans(),
    ecc=st.builds(EccErrors, counts, counts),
    fabric=st.builds(FabricHealth, st.sampled_from(["healthy", "unhealthy"]), st.lists(st.text()).map(tuple)),
)
parts = st.floats(0, 1)
uses = st.builds(
    GpuUse,
    parts,
    parts,
    st.none() | byte_counts,
    st.none() | byte_counts,
    st.none() | counts,
    st.none() | st.integers(0, 120),
    st.lists(st.builds(ProcessState, st.integers(1), st.none() | byte_counts, parts)).map(tuple),
    st.lists(st.builds(PartitionUse, ids, ids, parts, st.none() | byte_counts)).map(tuple),
)
events = st.builds(
    GpuEvent,
    kind=st.sampled_from(["xid", "clock", "operational"]),
    uuid=st.text(),
    xid=st.none() | counts,
    gpu_instance=st.none() | ids,
    severity=st.sampled_from([None, "fatal"]),
    contained=st.none() | st.booleans(),
    dropped=st.booleans(),
    incident=st.text(),
)
event_logs = st.builds(
    EventLog, st.integers(1), st.lists(st.builds(FakeEvent, st.integers(1), addresses, events)).map(tuple)
)
gpus = st.builds(
    GpuState,
    minor=st.integers(0, 31),
    board=st.integers(0, 9),
    present=st.booleans(),
    lost=st.booleans(),
    process_ids=pids,
    mig=mig_states,
    compute_mode=st.sampled_from(["default", "prohibited", "exclusive-process"]),
    time_slice=st.integers(0, 3),
    memory=memories,
    health=healths,
    use=uses,
)
faults = st.builds(
    CallFault,
    number=st.integers(1),
    call=st.text(),
    pci=st.none() | addresses,
    code=st.none() | st.integers(),
    times=st.none() | st.integers(1),
    seconds=st.none() | st.floats(0, 10),
    after=st.booleans(),
    lie=st.booleans(),
)
mps_faults = st.builds(
    MpsFault,
    number=st.integers(1),
    kind=st.sampled_from(["hang", "die", "lie", "refuse"]),
    command=st.text(),
    pci=st.none() | addresses,
    words=st.text(),
    times=st.none() | st.integers(1),
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
    mps_faults=st.lists(mps_faults).map(tuple),
    pretend_cgroups=st.text(),
    accounting=st.builds(Accounting, st.integers(1), st.booleans()),
    events=event_logs,
)


@given(states)
def test_a_state_is_read_back_as_it_was_written(state: MachineState) -> None:
    assert MachineState.from_json(state.to_json("m"), "m") == state
