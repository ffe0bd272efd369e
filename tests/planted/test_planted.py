"""Each fault still has the place in the code that it names."""

import ast

import pytest

from tests.planted.__main__ import Fault, faults, planted


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault["name"])
def test_a_fault_has_one_place_and_leaves_python(fault: Fault) -> None:
    _, text = planted(fault)
    ast.parse(text)
