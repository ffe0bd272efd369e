"""Each code that NVIDIA's catalog of XIDs has is in the table, as bad as the catalog says."""

import pytest

from driver.health.xids import meaning_of
from tests.gpus import XIDS, XidClass

CATALOG: dict[str, tuple[int, ...]] = {
    "ignore": (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161),
    "restart the program": (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88),
        *(89, 94, *range(96, 106), *range(126, 136), 139),
    ),
    "reset the GPU": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    "restart the machine": (79, 151),
    "somebody has to look": (54, 142, 159),
    "none": tuple(range(162, 173)),
    "update the software": (78,),
    "by what is around it": (45, 48, 74, *range(144, 151), 154),
}
"""The codes by the catalog's immediate action (docs.nvidia.com/deploy/xid-errors, for A100 and newer)."""

MEANS: dict[str, tuple[XidClass, ...]] = {
    "ignore": ("informational", "application"),
    "restart the program": ("application",),
    "reset the GPU": ("needs-reset",),
    "restart the machine": ("needs-reboot",),
    "somebody has to look": ("contained",),
    "none": ("informational",),
    "update the software": ("informational",),
    "by what is around it": ("application", "informational", "contained", "needs-reset"),
}

OTHERWISE: dict[int, XidClass] = {
    94: "contained",  # the program has ended, and the part of the memory waits for a reset
    109: "application",  # a program that hangs causes it as well
    167: "needs-reboot",  # fatal by their names; the catalog says nothing yet
    168: "needs-reboot",
    169: "needs-reboot",
}


@pytest.mark.parametrize("action", CATALOG)
def test_a_code_is_as_bad_as_what_the_catalog_asks_for(action: str) -> None:
    wrong = {
        code: meaning_of(code).xid_class
        for code in CATALOG[action]
        if code not in XIDS
        or (code not in OTHERWISE and XIDS[code].xid_class not in MEANS[action])
        or XIDS[code].xid_class != OTHERWISE.get(code, XIDS[code].xid_class)
    }
    assert wrong == {}


def test_what_the_catalog_does_not_have_is_from_the_kernel_modules() -> None:
    known = {code for codes in CATALOG.values() for code in codes}
    assert XIDS.keys() - known == {173, 174, 175, 176}
