"""What Kubernetes 1.38 answers differently than the rules here, which are those of 1.37.

No slice that this driver publishes and no claim for its classes meets one of these: what does is in the rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from tools.conformance.area import Case


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the area, what changed, and whether it explains how the answers to a case differ."""

    area: str
    what: str
    explains: Callable[[Case, str], bool]


def _is_about(*names: str) -> Callable[[Case, str], bool]:
    """Whether the case was written for one of these rules."""
    return lambda case, _: case.get("name") in names


def _says(pattern: str) -> Callable[[Case, str], bool]:
    """Whether the difference has this form."""
    return lambda _, difference: re.fullmatch(pattern, difference) is not None


def _invalid(place: str) -> str:
    """Kubernetes alone refuses what is at a place."""
    return rf"only ours: \[\]; only Kubernetes': \[(\('[^']*{place}', 'FieldValue\w+'\)(, )?)+\]"


_FRACTION = re.compile(r'"\d*\.\d+[KMGT]i"')
"""An amount such as 0.5Gi, which Kubernetes keeps in a number of any precision."""

CHANGES = (
    Change(
        "allocation",
        "a constraint whose attribute has no domain is met by no device, and an attribute without a value "
        "that is known is an error; the API server stores neither",
        _is_about("no domain", "attributes of no known type"),
    ),
    Change(
        "allocation",
        "a default of a request policy counts as allowed also where it is a fraction of a binary unit",
        lambda case, _: _FRACTION.search(json.dumps(case["slices"])) is not None,
    ),
    Change(
        "cel",
        "the cost of a part that fails, where the whole has an answer, differs by some units",
        lambda case, difference: (
            _same_truth(difference) and re.search(r"\|\||&&|\?|all\(|exists", case["expression"]) is not None
        ),
    ),
    Change(
        "cel",
        "types of lists and maps are compared when the selector is compiled",
        lambda case, _: "type(" in case["expression"],
    ),
    Change("cel", "a comparison with NaN is false", lambda _, difference: "NaN values" in difference),
    Change(
        "validation",
        "a device's node selector has exactly one term",
        _says(_invalid(r"nodeSelectorTerms[^']*")),
    ),
    Change(
        "validation",
        "a name has at most one slash",
        _says(_invalid(r"(matchAttribute|distinctAttribute|\])")),
    ),
    Change("validation", "a number in a version has at most 18 digits", _says(_invalid(r"version"))),
    Change(
        "validation",
        "values and steps of a request policy may be fractions",
        _says(r"only ours: \[\('[^']*requestPolicy\.[^']*', 'FieldValue\w+'\)\]; only Kubernetes': \[\]"),
    ),
)


def _same_truth(difference: str) -> bool:
    """Whether both answers are true, or both false."""
    found = re.findall(r"'matches': (True|False)", difference)
    return len(found) == 2 and found[0] == found[1]


def explained(area: str, case: Case, difference: str) -> str | None:
    """The change that explains a difference; None if none does."""
    return next((one.what for one in CHANGES if one.area == area and one.explains(case, difference)), None)
