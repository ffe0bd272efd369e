"""An event becomes a class, and an incident the verdicts of that class under an admin's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.health.health_rules import EVICTING
from driver.health.judge import incidents_of, reported_class
from driver.health.xids import MOST_XID
from driver.nvml.health.calls import Severity
from tests.gpus import (
    XID_CLASSES,
    XIDS,
    Device,
    GpuEvent,
    Health,
    HealthRules,
    Incident,
    PciAddress,
    Placement,
    Region,
    Taint,
    XidClass,
    device_faults,
    health_of,
    taints_of,
    verdicts_of,
)

PCI = PciAddress.parse("0000:8a:00.0")
NO_RULES = HealthRules()


def event(xid: int | None, severity: Severity | None = None, **more: bool | None) -> GpuEvent:
    return GpuEvent("xid" if xid else "operational", "GPU-1", xid=xid, severity=severity, **more)  # type: ignore[arg-type]


ADMIN = HealthRules({95: "ignore", 31: "needs-reset"})
EVICTS = HealthRules(evict=frozenset({"needs-reset"}))


@pytest.mark.parametrize(
    ("xid", "rules", "told", "expected"),
    [
        # What a program did, or what was corrected, taints nothing.
        *((xid, NO_RULES, None, []) for xid in (13, 31, 43, 45, 68, 109, 63, 92, 154)),
        (94, NO_RULES, None, ["xid 94 NoSchedule"]),
        (95, NO_RULES, None, ["xid 95 NoSchedule", "needs-reset xid-95 NoSchedule"]),
        (79, NO_RULES, None, ["xid 79 NoSchedule", "needs-reboot xid-79 NoSchedule"]),
        (9999, NO_RULES, None, ["xid 9999 NoSchedule"]),
        # An admin says it otherwise than the table and the driver.
        (95, ADMIN, "needs-reset", []),
        (31, ADMIN, "application", ["xid 31 NoSchedule", "needs-reset xid-31 NoSchedule"]),
        # Pods are evicted only for what the admin names.
        (95, EVICTS, None, ["xid 95 NoSchedule", "needs-reset xid-95 NoExecute"]),
        (79, EVICTS, None, ["xid 79 NoSchedule", "needs-reboot xid-79 NoSchedule"]),
        (94, EVICTS, None, ["xid 94 NoSchedule"]),
        # A fault without an XID has its way out as taint.
        (None, NO_RULES, "needs-reset", ["needs-reset event NoSchedule"]),
        (None, NO_RULES, None, []),
    ],
)
def test_a_fault_taints_by_its_class(
    xid: int | None, rules: HealthRules, told: XidClass | None, expected: list[str]
) -> None:
    found = taints_of(verdicts_of(Incident(Region(PCI), xid, told), rules))
    words = [f"{one.key.removeprefix('gpu.nvidia.com/')} {one.value} {one.effect}" for one in found]
    assert words == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (event(95), None),
        (event(31, "recoverable", contained=True), "application"),
        (event(31, "recoverable", contained=False), "needs-reset"),
        (event(95, "recoverable", contained=True), "contained"),
        (event(31, "fatal", contained=True), "needs-reset"),
        (event(79, "fatal", contained=False), "needs-reboot"),
        (event(95, "fatal", recovered=True), "application"),
        (event(95, "corrected", contained=True), "informational"),
        (event(31, "informational", contained=True), "application"),
        (event(None, "fatal", contained=True), "needs-reset"),
        (event(None, "recoverable", contained=True), "informational"),
        (event(9999, "recoverable", contained=True), "contained"),
    ],
)
def test_what_the_driver_says_of_an_event_leads(told: GpuEvent, expected: XidClass | None) -> None:
    assert reported_class(told) == expected


def test_only_a_fault_that_spares_the_pods_that_run_leaves_the_kubelet_at_healthy() -> None:
    assert {one.word for one in verdicts_of(Incident(Region(PCI), 94), NO_RULES)} == {"Healthy"}
    assert {one.word for one in verdicts_of(Incident(Region(PCI), 95), NO_RULES)} == {"Unhealthy"}


def test_people_read_what_it_is_where_and_what_to_do() -> None:
    (verdict,) = verdicts_of(Incident(Region(PCI, Placement(2, 2)), 94), NO_RULES)
    assert "XID 94" in verdict.text
    assert "0000:8a:00.0 at memory slice 2" in verdict.text
    assert "reset it when it is free" in verdict.text


rules_given = st.builds(
    HealthRules,
    st.dictionaries(st.integers(1, MOST_XID), st.sampled_from(XID_CLASSES)),
    st.frozensets(st.sampled_from(EVICTING)),
)


@given(
    xid=st.none() | st.integers(1, MOST_XID) | st.sampled_from(sorted(XIDS)),
    severity=st.none() | st.sampled_from(["informational", "corrected", "recoverable", "fatal"]),
    contained=st.none() | st.booleans(),
    recovered=st.booleans(),
    rules=rules_given,
)
def test_whatever_is_told_the_api_server_takes_the_taints(
    xid: int | None, severity: Severity | None, contained: bool | None, recovered: bool, rules: HealthRules
) -> None:
    told = reported_class(event(xid, severity, contained=contained, recovered=recovered))
    taints = taints_of(verdicts_of(Incident(Region(PCI), xid, told), rules))

    device = Device("gpu-0000-8a-00-0", PCI, {"type": "gpu"}, taints=taints)
    assert device_faults(device, "gpu.nvidia.com") == ()
    assert len({taint.key for taint in taints}) == len(taints)
    assert all(taint.effect != "NoExecute" for taint in taints) or rules.evict


@given(rules=rules_given, xid=st.integers(1, MOST_XID))
def test_what_the_admin_says_of_a_code_decides_alone(rules: HealthRules, xid: int) -> None:
    for told in (None, *XID_CLASSES):
        if xid in rules.xids:
            assert rules.class_of(xid, told) == rules.xids[xid]


some_incident = st.builds(
    Incident,
    st.just(Region(PCI)),
    st.none() | st.sampled_from([31, 48, 79, 94, 95, 119, 9999]),
    st.none() | st.sampled_from(XID_CLASSES),
)


def read_back(incidents: list[Incident], rules: HealthRules) -> tuple[Health, Health]:
    """The health of a device by these incidents, and by their taints, which is read without the rules."""
    worst_first = sorted(incidents, key=lambda one: -XID_CLASSES.index(one.xid_class(rules)))
    verdicts = [verdict for incident in worst_first for verdict in verdicts_of(incident, rules)]
    told = incidents_of(Region(PCI), taints_of(verdicts))
    read = [verdict for incident in told for verdict in verdicts_of(incident, NO_RULES)]
    return health_of(verdicts), health_of(read)


@given(incident=some_incident, rules=rules_given)
def test_taints_tell_of_the_health_that_they_were_made_of(incident: Incident, rules: HealthRules) -> None:
    made, read = read_back([incident], rules)
    assert read == made


@given(incidents=st.lists(some_incident, max_size=4), rules=rules_given)
def test_of_several_faults_the_worst_is_read_back(incidents: list[Incident], rules: HealthRules) -> None:
    made, read = read_back(incidents, rules)
    assert read.word == made.word


def test_taints_of_other_faults_tell_of_no_incident() -> None:
    told = (("needs-reset", "drain-and-reset"), ("gpu-lost", "nvmlX"), ("xid", "no-number"), ("xid", "99999"))
    taints = [Taint(f"gpu.nvidia.com/{key}", value, "NoSchedule") for key, value in told]
    assert incidents_of(Region(PCI), taints) == ()
