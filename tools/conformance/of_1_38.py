"""What Kubernetes 1.38 answers differently than the rules here, which are those of 1.37.

No slice of this driver and no claim for its classes meets one of these: what does is in the rules.
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


def _only(place: str) -> Callable[[Case, str], bool]:
    """Whether one side alone refuses what is at such a place: ``ours PATH`` or ``theirs PATH``."""
    return lambda _, refused: re.fullmatch(place, refused) is not None


_FRACTION = re.compile(r'"default": "\d*\.\d+[KMGT]i"')
"""A default such as 0.5Gi, which Kubernetes keeps in a number of any precision."""

CHANGES = (
    Change(
        "allocation",
        "a constraint whose attribute has no domain is met by no device, and an attribute without a value "
        "that is known is an error; the API server stores neither",
        _is_about("no domain", "attributes of no known type"),
    ),
    Change(
        "allocation",
        "comparing an amount with a fraction of a binary unit leaves it as it was",
        _is_about(
            "the default and a minimum of arbitrary precision",
            "the default and a value of arbitrary precision",
        ),
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
        lambda case, difference: "type(" in case["expression"] and "compileError" in difference,
    ),
    Change("cel", "a comparison with NaN is false", lambda _, difference: "NaN values" in difference),
    Change(
        "cel",
        "a macro over what has no elements is no error where it looks at none",
        lambda _, difference: "the range of a macro must be a list or a map" in difference,
    ),
    Change(
        "cel",
        "isInteger() answers for numbers beyond 64 bits",
        lambda case, _: "isInteger(" in case["expression"],
    ),
    Change(
        "validation",
        "a device's node selector has exactly one term, and where its node is said is checked however many "
        "devices there are",
        _only(r"theirs spec\.devices\[\d+\](\.(nodeName|nodeSelector|allNodes).*)?"),
    ),
    Change("validation", "a name has at most one slash", _only(r"theirs .*(Attribute|\]|\.capacity)")),
    Change("validation", "a number in a version has at most 18 digits", _only(r"theirs .*\.version")),
    Change(
        "validation",
        "values and steps of a request policy may be fractions",
        _only(r"ours .*\.requestPolicy\..*"),
    ),
    Change(
        "validation",
        "steps of a request policy are checked in thousandths",
        _only(r"theirs .*\.requestPolicy\.validRange\.\w+"),
    ),
)


def _same_truth(difference: str) -> bool:
    """Whether both answers are true, or both false."""
    found = re.findall(r"'matches': (True|False)", difference)
    return len(found) == 2 and found[0] == found[1]


def explained(area: str, case: Case, difference: str) -> str | None:
    """The changes that explain a difference; None if they do not explain all of it."""
    parts = [difference]
    if area == "validation":
        ours, theirs = (re.findall(r"\('([^']*)', '", half) for half in difference.split("; only "))
        parts = [*(f"ours {path}" for path in ours), *(f"theirs {path}" for path in theirs)]
    changes = [one for one in CHANGES if one.area == area]
    found = [next((one.what for one in changes if one.explains(case, part)), "") for part in parts]
    return "; ".join(dict.fromkeys(found)) if all(found) else None
