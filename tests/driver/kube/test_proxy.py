"""A proxy is used, and spared, as Go's clients do."""

from __future__ import annotations

import pytest

from driver.kube.endpoint import is_proxied

POD = "https://10.96.0.1:443"
PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize("environment", [PROXY, {"https_proxy": "http://proxy:3128"}])
def test_https_goes_to_its_proxy_by_either_spelling(environment: dict[str, str]) -> None:
    assert is_proxied(POD, environment)


@pytest.mark.parametrize(
    "environment", [{}, {"HTTPS_PROXY": ""}, {"HTTP_PROXY": "http://p:1"}, {"ALL_PROXY": "http://p:1"}]
)
def test_what_is_not_meant_for_https_is_not_used_for_it(environment: dict[str, str]) -> None:
    assert not is_proxied(POD, environment)


def test_http_has_a_proxy_of_its_own() -> None:
    assert is_proxied("http://10.96.0.1:8080", {"HTTP_PROXY": "http://p:1"})
    assert not is_proxied("http://10.96.0.1:8080", PROXY)


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost"])
def test_this_machine_is_never_behind_a_proxy(server: str) -> None:
    assert not is_proxied(server, PROXY)


@pytest.mark.parametrize(
    ("server", "spared"),
    [
        (POD, "*"),
        (POD, "a.example, 10.96.0.0/12"),
        (POD, "10.96.0.1"),
        (POD, "10.96.0.1:443"),
        ("https://[fd00:10:96::1]:443", "fd00:10:96::/112"),
        ("https://[fd00:10:96::1]:443", "fd00:10:96::1"),
        ("https://[fd00:10:96::1]:443", "[fd00:10:96::1]:443"),
        ("https://api.example.com", "example.com"),
        ("https://api.example.com", "API.EXAMPLE.COM"),
        ("https://api.example.com.", "api.example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://api.example.com", "*.example.com"),
        ("https://example.com:6443", "example.com:6443"),
    ],
)
def test_what_no_proxy_names_is_reached_without_one(server: str, spared: str) -> None:
    assert not is_proxied(server, {**PROXY, "NO_PROXY": spared})
    assert not is_proxied(server, {**PROXY, "no_proxy": spared})


@pytest.mark.parametrize(
    ("server", "spared"),
    [
        (POD, ""),
        (POD, ","),
        (POD, "10.97.0.0/16"),
        (POD, "10.96.0.0/99"),
        (POD, "10.96.0.1:6443"),
        (POD, "96.0.1"),
        (POD, "10.96.0.10"),
        (POD, "fd00::/8"),
        ("https://example.com", ".example.com"),
        ("https://notexample.com", "example.com"),
        ("https://example.com:6443", "example.com:443"),
        ("https://[fd00:10:96::1]:443", "[fd00:10:96::1]:6443"),
    ],
)
def test_what_it_does_not_name_goes_to_the_proxy(server: str, spared: str) -> None:
    assert is_proxied(server, {**PROXY, "NO_PROXY": spared})
