"""What somebody who means harm, or a program that is broken, may send: made at random, near what is right."""

from typing import Any

from hypothesis import strategies as st

from driver.claims.opaque import API_VERSION, KINDS
from tests.gpus import DRIVER_NAME

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "\0",
            "a\nb",
            "\x1b[31m",
            "\ud800",
            "\u202e",
            "../../etc",
            "x" * 5000,
            "$(id)",
            "%s%n",
            "gpu-0000-17-00-0",
            "1Ei",
            "-1Mi",
            "1e999",
            "0x10",
            "NaN",
        ]
    ),
)
"""Texts, those with control characters, half characters and great length among them."""

NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([0, -1, 10**400, 2**63, 1e308, 0.5]))

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
"""Any JSON, and numbers that JSON does not have."""


def deep(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _either(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What is right most of the time, else anything."""
    return st.one_of(right, right, right, VALUES)


MPS_CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "defaultActiveThreadPercentage": _either(st.integers(-5, 105)),
        "defaultPinnedDeviceMemoryLimit": _either(st.sampled_from(["1Mi", "2Gi", "1E", "-1"])),
        "defaultPerDevicePinnedMemoryLimit": _either(
            st.dictionaries(
                st.sampled_from(["0", "1", "-1", "GPU-1", "*"]), _either(st.just("1Gi")), max_size=3
            )
        ),
        "multiUser": _either(st.booleans()),
        "more": VALUES,
    },
)
SHARINGS = st.fixed_dictionaries(
    {},
    optional={
        "strategy": _either(st.sampled_from(["TimeSlicing", "MPS", "mps"])),
        "timeSlicingConfig": _either(
            st.fixed_dictionaries({}, optional={"interval": _either(st.sampled_from(["Default", "Long"]))})
        ),
        "mpsConfig": _either(MPS_CONFIGS),
        "": VALUES,
    },
)
DOCUMENTS = st.one_of(
    st.fixed_dictionaries(
        {"apiVersion": _either(st.just(API_VERSION)), "kind": _either(st.sampled_from(sorted(KINDS)))},
        optional={
            "sharing": _either(SHARINGS),
            "memory": VALUES,
            "iommu": _either(st.fixed_dictionaries({}, optional={"backendPolicy": VALUES})),
            "metadata": VALUES,
        },
    ),
    VALUES,
    st.just(deep(90)),
)
"""Opaque configurations as the driver gets them, once their JSON is read."""

CONFIGS = st.lists(
    st.fixed_dictionaries(
        {
            "source": _either(st.sampled_from(["FromClass", "FromClaim"])),
            "opaque": _either(
                st.fixed_dictionaries({"driver": _either(st.just(DRIVER_NAME)), "parameters": DOCUMENTS})
            ),
        },
        optional={"requests": _either(st.lists(st.sampled_from(["gpu", "gpu-0", "gpu/a"]), max_size=2))},
    ),
    max_size=3,
)
"""What an allocation lists under ``config``."""
