"""Selectors select devices as the Kubernetes scheduler does, and say why where they cannot."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.selector import SelectorFailed, SelectorInvalid, TooCostly, selectors_within
from tests.clusters import SelectorDevice, compile_selector

DEVICE = SelectorDevice(
    "gpu.example.com",
    {
        "model": {"string": "H100"},
        "index": {"int": 3},
        "driverVersion": {"version": "550.54.15"},
        "other.example.com/model": {"string": "A100"},
        "lists.example.com/names": {"strings": ["a", "b"]},
    },
    {"memory": {"value": "80Gi"}},
    allow_multiple_allocations=True,
)
A_LONG_TEXT = "a" * 9000


def matches(expression: str, device: SelectorDevice = DEVICE) -> bool:
    return compile_selector(expression).matches(device)


def test_an_evaluation_ends_when_it_costs_more_than_allowed() -> None:
    nested = "".join(f"lists.range(100).all({name}, " for name in "abcdef") + "true" + ")" * 6

    with pytest.raises(SelectorFailed, match="costs more than 1000000 units"):
        matches(nested)
    with pytest.raises(SelectorFailed, match="costs more than 1000000 units"):
        matches(nested + " || true")


def test_lists_that_double_with_each_variable_fill_no_memory() -> None:
    doubled = "".join(f"cel.bind(x{n + 1}, x{n} + x{n}, " for n in range(40))

    with pytest.raises(SelectorFailed, match="costs more"):
        matches(f"cel.bind(x0, [1, 1], {doubled}x40.size() > 0{')' * 41}")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (f"'{A_LONG_TEXT}'.replace('', '{A_LONG_TEXT}') == ''", "too long"),
        (f"[{', '.join(['0'] * 9000)}].map(n, '').join('{A_LONG_TEXT}') == ''", "too long"),
        (f"('{'%.1000000f' * 70}' + '').format([{', '.join(['1.0'] * 70)}]) == ''", "too long"),
        ("'%.99999999f'.format([dyn(1.0)]) == ''", "too large"),
        ("lists.range(1000001).size() > 0", "not within 0 and 1000000"),
        *(
            (f"cel.bind(n, lists.range(2000), sets.{name}(n, n))", "too many")
            for name in ("contains", "equivalent", "intersects")
        ),
        ("cel.bind(n, lists.range(2000), n.distinct() == n)", "too many"),
        ("sign(quantity('1e2000000000').add(1)) == 1", "too far apart"),
    ],
    ids=lambda value: value[:40],
)
def test_a_function_that_would_fill_memory_or_take_long_is_an_error(expression: str, reason: str) -> None:
    with pytest.raises((SelectorFailed, SelectorInvalid), match=reason):
        matches(expression)


def test_a_nested_repetition_takes_no_exponential_time() -> None:
    assert matches(f"'{'a' * 5000}b'.find('(a+)+$') == ''")


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize(
    "expression",
    ["(" * 3000 + "true" + ")" * 3000, "[" * 3000 + "]" * 3000 + " == []", "device" + ".a" * 3000],
)
def test_deep_nesting_is_refused(expression: str) -> None:
    with pytest.raises(SelectorInvalid, match=r"nested|recursion limit"):
        compile_selector(expression)


def test_a_macro_that_doubles_its_text_is_refused() -> None:
    with pytest.raises(SelectorInvalid, match="more than 100000 parts"):
        compile_selector("optional.of(1)" + ".optMap(x, x)" * 30 + ".hasValue()")


def test_false_parts_are_the_terms_that_keep_a_device_out() -> None:
    selector = compile_selector(
        'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index > 5\n'
        '  && (has(device.attributes["x"].y)) && device.attributes["x"].y == 1'
    )

    assert selector.false_parts(DEVICE) == (
        'device.attributes["gpu.example.com"].index > 5',
        'has(device.attributes["x"].y)',
        'device.attributes["x"].y == 1',
    )
    assert compile_selector("device.allowMultipleAllocations").false_parts(DEVICE) == ()


def test_the_api_alone_imports_nothing_that_compiles() -> None:
    """A plugin on a node without rules must not pay for a compiler."""
    program = (
        "import sys; import kubernetes_rules.cel.selector, driver.policy.predicate;"
        "print(sorted(set(sys.modules) & {'re2', 'kubernetes_rules.cel.checker'}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        selector = compile_selector(text)
        selector.matches(DEVICE)
    except (SelectorInvalid, SelectorFailed):
        return


def test_costly_selectors_end_when_their_time_is_over_and_others_do_not() -> None:
    numbers = str(list(range(10)))
    costly = "true"
    for depth in range(4):
        costly = f"{numbers}.all(x{depth}, {costly})"

    with selectors_within(0.02):
        assert matches("true")
        with pytest.raises(TooCostly, match=r"more than 0\.02 s of processor time") as caught:
            all(matches(costly) and matches("true") for _ in range(1000))
    assert caught.value.expression == costly
    assert matches(costly)
