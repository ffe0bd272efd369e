"""Files with objects that the API server refuses on purpose, or that only older versions accepted."""

REFUSED = frozenset(
    {
        "deploy/scenarios/limits-without-device-plugin/fraction.yaml",
        "deploy/scenarios/limits-without-device-plugin/request-alone.yaml",
        "deploy/scenarios/limits-without-device-plugin/unequal.yaml",
        "deploy/scenarios/one-gpu-three-ways/half.yaml",
    }
)
"""Pods that are invalid, as their scenarios show."""

_OLD = ("deploy/examples/translate/old/", "docs/compare-and-migrate.md")


def is_old(source: str) -> bool:
    """Whether a file, by its path, has objects of other programs or of older versions of the API."""
    return source.startswith(_OLD)
