"""Kubernetes' own validation and allocator take what nodes with shared GPUs publish, and decide as we do."""

import itertools
from random import Random
from typing import Any

import pytest

from tests.deviceclasses.shipped_classes import DEFAULT, expressions
from tests.fakegpu.guests import UNLICENSED
from tests.gpus import DRIVER_NAME, unshared_name
from tools.conformance.allocation.objects import Json, claim, exactly
from tools.conformance.nodes.mig_area import ask
from tools.conformance.nodes.mig_nodes import offers, one_rule, slices
from tools.conformance.nodes.shares_area import AREA, written_cases
from tools.conformance.oracle import Oracle

GIB = 2**30
OWN = f"device.attributes['{DRIVER_NAME}']"
SHARED, WHOLE, MIG = (f"{OWN}.type == '{form}'" for form in ("shared", "gpu", "mig"))
ONE_UUID = {"requests": [], "distinctAttribute": f"{DRIVER_NAME}/uuid"}


def given(
    oracle: Oracle, rule: str, *claims: Json, gpus: int = 2, machine: str = "hgx-h100"
) -> list[list[tuple[str, Any]]] | None:
    """The devices of each claim on a node with H100s, with what they take; None where there is no room."""
    published = slices(offers(machine, one_rule(rule), "delivered", gpus))
    [(_, answer)] = oracle.ask([ask(rule, published, *claims)])
    if "results" not in answer:
        assert answer == {"none": True}
        return None
    return [
        [(one["device"], one.get("consumedCapacity")) for one in result["devices"]["results"]]
        for result in answer["results"]
    ]


def claims_for(selector: str, count: int, **fields: Any) -> list[Json]:
    """So many claims for one device each."""
    return [claim(exactly("r", selector, **fields), name=f"claim-{number}") for number in range(count)]


def memory(amount: str) -> Json:
    return {"requests": {"memory": amount}}


def test_every_slice_of_every_machine_and_sample_is_taken_and_allocated_from(oracle: Oracle) -> None:
    answered = list(oracle.ask(written_cases(gpus=None)))

    wrong = [
        f"{case.get('name', case['op'])}: {answer.get('errors') or answer}"
        for case, answer in answered
        if answer.get("errors")
        or (case["op"] == "allocate" and ("results" in answer) == (case["name"].split()[0] in UNLICENSED))
    ]
    assert wrong == []
    assert len(answered) >= 500


def test_kubernetes_decides_about_every_machine_and_sample_as_we_do(oracle: Oracle) -> None:
    answered = oracle.ask(written_cases(gpus=2))

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []


def test_kubernetes_decides_about_random_nodes_with_shares_as_we_do(oracle: Oracle, kubernetes: str) -> None:
    if kubernetes == "1.36":
        pytest.skip("1.36 lets a distinctAttribute of several requests pass, which our allocator never does")
    chance = Random("shares on a real cluster")  # noqa: S311 - no secret
    asked = list(itertools.islice(iter(lambda: AREA.random(chance), None), 500))

    answered = oracle.ask(asked)

    assert [difference for case, answer in answered if (difference := AREA.difference(case, answer))] == []


@pytest.mark.parametrize("strategy", ["TimeSlicing", "MPS"])
def test_the_shares_of_one_gpu_are_given_out_before_those_of_the_next(oracle: Oracle, strategy: str) -> None:
    rule = f"shared: {{strategy: {strategy}, shares: 4}}"

    found = given(oracle, rule, *claims_for(SHARED, 8))

    assert found is not None
    assert [unshared_name(name) for [(name, _)] in found] == ["gpu-0000-1b-00-0"] * 4 + [
        "gpu-0000-43-00-0"
    ] * 4
    assert {tuple(sorted(taken.items())) for [(_, taken)] in found} == {(("memory", "0"), ("shares", "1"))}
    assert given(oracle, rule, *claims_for(SHARED, 9)) is None


def test_nobody_is_given_more_shares_than_there_are_or_memory_that_is_not_measured(oracle: Oracle) -> None:
    rule = "shared: {strategy: TimeSlicing, shares: 4}"

    assert given(oracle, rule, *claims_for(SHARED, 1, capacity={"requests": {"shares": "5"}})) is None
    assert given(oracle, rule, *claims_for(SHARED, 1, capacity=memory("1"))) is None
    [[(_, taken)]] = given(oracle, rule, *claims_for(SHARED, 1, capacity={"requests": {"shares": "3"}})) or []
    assert taken == {"memory": "0", "shares": "3"}


ALL_TIERS = (
    "mig: {dynamic: {profiles: [1g, 3g]}}, "
    "shared: [{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 4}]"
)


@pytest.mark.parametrize("taken", [SHARED, WHOLE, MIG])
def test_the_forms_of_one_gpu_exclude_each_other(oracle: Oracle, taken: str) -> None:
    for wanted in (SHARED, WHOLE, MIG):
        claims = [claim(exactly("r", taken), name="first"), claim(exactly("r", wanted), name="second")]
        alone = given(oracle, ALL_TIERS, *claims, gpus=1)
        assert (alone is not None) == (wanted == taken and wanted != WHOLE), wanted
        both = given(oracle, ALL_TIERS, *claims, gpus=2)
        assert both is not None, wanted
        if wanted != taken:
            assert len({name[:16] for [(name, _)] in both}) == 2


def test_two_strategies_of_one_gpu_exclude_each_other(oracle: Oracle) -> None:
    sliced, served = (f"{SHARED} && {OWN}.sharing == '{one}'" for one in ("time-slicing", "mps"))
    claims = [claim(exactly("r", sliced), name="first"), claim(exactly("r", served), name="second")]
    both = "[{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 4}]"

    for rule in (ALL_TIERS, f"shared: {both}"):
        assert given(oracle, rule, *claims, gpus=1) is None
        assert given(oracle, rule, *claims, gpus=2) is not None
    layout = f"mig: {{layout: [7g]}}, shared: {both}"
    assert given(oracle, layout, *claims, gpus=1) is None
    assert given(oracle, layout, *claims, gpus=2) is not None


def test_memory_is_rounded_up_to_steps_and_packed(oracle: Oracle) -> None:
    rule = "shared: {strategy: MPS, memory: {step: 5Gi}}"

    found = given(oracle, rule, *claims_for(SHARED, 3, capacity=memory("31Gi")))

    assert found == [
        [("gpu-0000-1b-00-0-mps-mem", {"memory": "35Gi"})],
        [("gpu-0000-1b-00-0-mps-mem", {"memory": "35Gi"})],
        [("gpu-0000-43-00-0-mps-mem", {"memory": "35Gi"})],
    ]
    assert given(oracle, rule, *claims_for(SHARED, 1)) == [[("gpu-0000-1b-00-0-mps-mem", {"memory": "5Gi"})]]
    assert given(oracle, rule, *claims_for(SHARED, 1, capacity=memory("80Gi"))) is None


def test_a_share_has_its_part_of_the_memory_unless_it_asks(oracle: Oracle) -> None:
    rule = "shared: {strategy: MPS, shares: 4, memory: {step: 1Gi}}"

    assert given(oracle, rule, *claims_for(SHARED, 1)) == [
        [("gpu-0000-1b-00-0-mps-4-mem", {"memory": "19Gi", "shares": "1"})]
    ]
    big = [*claims_for(SHARED, 1, capacity=memory("70Gi")), claim(exactly("r", SHARED), name="other")]
    assert [name for [(name, _)] in given(oracle, rule, *big) or []] == [
        "gpu-0000-1b-00-0-mps-4-mem",
        "gpu-0000-43-00-0-mps-4-mem",
    ]


def test_a_fractional_gpu_is_given_whole_unless_a_part_is_asked_for(oracle: Oracle) -> None:
    rule = "shared: {strategy: MPS, memory: {step: 5Gi}, fractional: true}"
    part = claims_for(WHOLE, 3, capacity=memory("20Gi"))

    assert given(oracle, rule, *claims_for(WHOLE, 2)) == [
        [("gpu-0000-1b-00-0-mps-frac-mem", {"memory": "75Gi"})],
        [("gpu-0000-43-00-0-mps-frac-mem", {"memory": "75Gi"})],
    ]
    assert given(oracle, rule, *part, claim(exactly("r", WHOLE), name="whole")) == [
        *([("gpu-0000-1b-00-0-mps-frac-mem", {"memory": "20Gi"})] for _ in range(3)),
        [("gpu-0000-43-00-0-mps-frac-mem", {"memory": "75Gi"})],
    ]
    assert given(oracle, rule, claim(exactly("r", WHOLE), name="whole"), *part, gpus=1) is None


def test_shares_of_one_claim_lie_together_unless_distinct_gpus_are_asked_for(oracle: Oracle) -> None:
    rule = "shared: {strategy: TimeSlicing, shares: 4}"
    together = claim(exactly("a", SHARED), exactly("b", SHARED))
    apart = claim(exactly("a", SHARED), exactly("b", SHARED), constraints=[ONE_UUID])

    [found] = given(oracle, rule, together) or []
    assert [name for name, _ in found] == ["gpu-0000-1b-00-0-ts-4"] * 2
    [found] = given(oracle, rule, apart) or []
    assert [name for name, _ in found] == ["gpu-0000-1b-00-0-ts-4", "gpu-0000-43-00-0-ts-4"]
    assert given(oracle, rule, apart, gpus=1) is None


def test_several_shares_of_one_request_are_of_distinct_gpus(oracle: Oracle) -> None:
    rule = "shared: {strategy: TimeSlicing, shares: 4}"

    [found] = given(oracle, rule, claim(exactly("r", SHARED, count=2))) or []
    assert [name for name, _ in found] == ["gpu-0000-1b-00-0-ts-4", "gpu-0000-43-00-0-ts-4"]
    assert given(oracle, rule, claim(exactly("r", SHARED, count=2)), gpus=1) is None


def test_memory_that_the_nvidia_driver_holds_is_given_in_steps_from_the_least_with_which_cuda_starts(
    oracle: Oracle,
) -> None:
    rule = "shared: {strategy: TimeSlicing, memory: {step: 64Mi}}"
    [expression] = expressions(DEFAULT["shared-memory"])

    def taken(amount: str | None) -> Any:
        fields = {} if amount is None else {"capacity": memory(amount)}
        found = given(oracle, rule, *claims_for(expression, 1, **fields), gpus=1, machine="l4-quad")
        return None if found is None else found[0][0][1]

    assert [taken(amount) for amount in (None, "1", "512Mi", "513Mi", "20Gi", "24Gi")] == [
        {"memory": "512Mi"},
        {"memory": "512Mi"},
        {"memory": "512Mi"},
        {"memory": "576Mi"},
        {"memory": "20Gi"},
        None,
    ]
    assert (
        given(oracle, f"memoryLimits: false, {rule}", *claims_for(expression, 1), machine="l4-quad") is None
    )
    assert given(oracle, rule, *claims_for(expression, 1)) is None, "its NVIDIA driver is older"


def test_guarantees_are_never_more_than_the_gpu_has(oracle: Oracle) -> None:
    rule = "shared: {strategy: TimeSlicing, memory: {step: 1Gi}}"
    [expression] = expressions(DEFAULT["shared-memory"])
    two_of_eleven = claims_for(expression, 2, capacity=memory("11Gi"))

    assert given(oracle, rule, *two_of_eleven, gpus=1, machine="l4-quad") is not None
    more = [*two_of_eleven, claim(exactly("r", expression), name="more")]
    assert given(oracle, rule, *more, gpus=1, machine="l4-quad") is None
