"""A selector that the API server accepts, and that costs thousands of times as much as others."""

_TEN = str(list(range(10)))

COSTLY_SELECTOR = (
    f"{_TEN}.all(a, {_TEN}.all(b, {_TEN}.all(c, {_TEN}.all(d, {_TEN}.all(e, true))))) && "
    "device.driver == 'nobody.example.com'"
)
"""It selects no device."""
