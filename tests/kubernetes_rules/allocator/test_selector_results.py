"""An expression has the same answer for devices that it cannot tell apart, and only for those."""

from typing import Any

import pytest

from kubernetes_rules.allocator.published import Device, read_slices
from kubernetes_rules.allocator.requests import SelectorResults, Unanswered
from tests.clusters import Object, compile_selector
from tools.conformance.allocation.objects import attributes, device, published

DRIVER = "gpu.example.com"
IS_A = f"device.attributes['{DRIVER}'].model == 'A'"


def read(*specs: Object) -> tuple[Device, ...]:
    """The devices of one slice of the driver."""
    (found,) = read_slices([published(list(specs))])
    return found.devices


def with_attributes(name: str, **values: Any) -> Object:
    return device(name, attributes=attributes(**values))


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("device.driver == 'd'", set()),
        ("'a' in device.attributes['d'] && device.attributes['d'].a == 1", {("attributes", "d", "a")}),
        ("has(device.capacity['d'].m)", {("capacity", "d", "m")}),
        ("device.capacity['d'].m.compareTo(quantity('1')) > 0", {("capacity", "d", "m")}),
        ("device.allowMultipleAllocations || device.attributes['e'].b", {("attributes", "e", "b")}),
    ],
)
def test_what_an_expression_reads_is_known(expression: str, reads: set[tuple[str, str, str]]) -> None:
    assert compile_selector(expression).reads == frozenset(reads)


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['d'].size() > 1",
        "device.attributes['d'].exists(name, name == 'a')",
        "device.attributes['d'].?a.orValue(1) == 1",
        "device.attributes[device.driver].a == 1",
        "'d' in device.attributes",
        "cel.bind(all, device.attributes['d'], all.a == 1)",
        "has(device.attributes)",
    ],
)
def test_an_expression_that_looks_at_more_may_read_anything(expression: str) -> None:
    assert compile_selector(expression).reads is None


def test_a_type_or_a_missing_attribute_makes_a_difference() -> None:
    text, number, without = read(
        with_attributes("a", model="1"), with_attributes("b", model=1), with_attributes("c", other=1)
    )
    results = SelectorResults()
    has_one = f"'model' in device.attributes['{DRIVER}'] && device.attributes['{DRIVER}'].model == 1"

    assert [results.first_false(one, [has_one]) for one in (number, text, without)] == [
        None,
        has_one,
        has_one,
    ]
    with pytest.raises(Unanswered, match=r"device gpu\.example\.com/pool-1/c: .*no such key: model"):
        results.first_false(without, [IS_A])


def test_a_device_with_a_broken_attribute_fails_also_if_that_is_not_read() -> None:
    good, broken = read(
        with_attributes("a", model="A", firmware="v1.0.0"), with_attributes("b", model="A", firmware="v1x")
    )
    results = SelectorResults()

    assert results.first_false(good, [IS_A]) is None
    with pytest.raises(Unanswered):
        results.first_false(broken, [IS_A])
    assert results.first_false(good, [IS_A]) is None
