"""A difference to Kubernetes 1.38 counts as known only if known changes explain all of it."""

import pytest

from tools.conformance.area import Case
from tools.conformance.of_1_38 import explained

TERMS = "('spec.devices[2].nodeSelector.nodeSelectorTerms', 'FieldValueInvalid')"
SLASHES = "('spec.devices[0].attributes[a/b/c]', 'FieldValueInvalid')"
OTHER = "('spec.pool.name', 'FieldValueInvalid')"
NO_CASE: Case = {"name": "random", "slices": []}


@pytest.mark.parametrize(
    ("area", "case", "difference", "is_known"),
    [
        ("validation", NO_CASE, f"only ours: []; only Kubernetes': [{TERMS}]", True),
        ("validation", NO_CASE, f"only ours: []; only Kubernetes': [{TERMS}, {SLASHES}]", True),
        ("validation", NO_CASE, f"only ours: []; only Kubernetes': [{TERMS}, {OTHER}]", False),
        ("validation", NO_CASE, f"only ours: [{TERMS}]; only Kubernetes': []", False),
        ("allocation", {"name": "no domain", "slices": []}, "Kubernetes {}\n  ours {}", True),
        ("allocation", NO_CASE, "Kubernetes {}\n  ours {}", False),
        ("mig", NO_CASE, "Kubernetes {}\n  ours {}", False),
    ],
)
def test_a_difference_is_known_if_all_of_it_is_explained(
    area: str, case: Case, difference: str, is_known: bool
) -> None:
    assert (explained(area, case, difference) is not None) is is_known
