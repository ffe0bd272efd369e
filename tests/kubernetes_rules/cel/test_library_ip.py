"""Addresses and networks in selectors behave as in Kubernetes."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_ip import OVERLOADS, parse_cidr, parse_ip
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.cel.values import equal
from tests.kubernetes_rules.cel.library_calls import call, cost


def run(name: str, *arguments: Any) -> Any:
    return call(OVERLOADS, name, *arguments)


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3", "01.2.3.4", "256.1.1.1", "::ffff:1.2.3.4", "fe80::1%eth0", "1::2::3", "1.2.3.4/8", "é"],
)
def test_what_kubernetes_takes_for_no_address_is_refused(text: str) -> None:
    assert not run("isIP", text)
    with pytest.raises(CelError):
        run("ip", text)
    with pytest.raises(CelError):
        run("ip.isCanonical", text)


@pytest.mark.parametrize(
    "text", ["1.2.3.4", "1.2.3.4/33", "::1/129", "1.2.3.4/08", "1.2.3.4/+8", "/8", "1.2.3.4/"]
)
def test_what_is_no_network_is_refused(text: str) -> None:
    assert not run("isCIDR", text)
    with pytest.raises(CelError):
        run("cidr", text)


KINDS = ("isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("0.0.0.0", {"isUnspecified"}),  # noqa: S104  # an address to look at, not to bind to
        ("::", {"isUnspecified"}),
        ("127.1.2.3", {"isLoopback"}),
        ("::1", {"isLoopback"}),
        ("224.0.0.9", {"isLinkLocalMulticast"}),
        ("224.0.1.9", set()),
        ("ff12::1", {"isLinkLocalMulticast"}),
        ("ff05::1", set()),
        ("169.254.1.1", {"isLinkLocalUnicast"}),
        ("febf::1", {"isLinkLocalUnicast"}),
        ("10.0.0.1", {"isGlobalUnicast"}),
        ("fd00::1", {"isGlobalUnicast"}),
        ("255.255.255.255", set()),
    ],
)
def test_an_address_is_of_the_kinds_that_go_tells(text: str, kinds: set[str]) -> None:
    assert {kind for kind in KINDS if run(kind, parse_ip(text))} == kinds


def test_an_address_is_canonical_in_one_form() -> None:
    assert run("ip.isCanonical", "2001:db8::1")
    assert not run("ip.isCanonical", "2001:DB8:0::1")
    assert equal(parse_ip("2001:db8::1"), parse_ip("2001:DB8:0::1"))
    assert run("family", parse_ip("1.2.3.4")) == 4
    assert run("string", parse_ip("2001:DB8:0::1")) == "2001:db8::1"


def test_a_network_keeps_the_bits_behind_its_prefix() -> None:
    network = parse_cidr("10.1.2.3/16")
    assert run("string", network) == "10.1.2.3/16"
    assert run("string", run("masked", network)) == "10.1.0.0/16"
    assert not equal(network, parse_cidr("10.1.0.0/16"))
    assert equal(run("ip", network), parse_ip("10.1.2.3"))
    assert run("prefixLength", network) == 16


def test_an_address_of_the_other_family_is_in_no_network() -> None:
    assert not run("containsIP", parse_cidr("0.0.0.0/0"), "::1")
    with pytest.raises(CelError):
        equal(parse_ip("1.2.3.4"), "1.2.3.4")


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 32), st.integers(0, 32))
def test_containment_is_that_of_ip_networks(
    one: ipaddress.IPv4Address, other: ipaddress.IPv4Address, bits: int, other_bits: int
) -> None:
    network = ipaddress.IPv4Network((one, bits), strict=False)
    inner = ipaddress.IPv4Network((other, other_bits), strict=False)
    assert run("containsIP", parse_cidr(f"{one}/{bits}"), str(other)) is (other in network)
    assert run("containsIP", parse_cidr(f"{one}/{bits}"), parse_ip(str(other))) is (other in network)
    within = inner.subnet_of(network)
    assert run("containsCIDR", parse_cidr(f"{one}/{bits}"), f"{other}/{other_bits}") is within
    assert run("containsCIDR", parse_cidr(f"{one}/{bits}"), parse_cidr(f"{other}/{other_bits}")) is within


def test_costs_count_octets_and_texts() -> None:
    assert cost(OVERLOADS, "ip", "255.255.255.255") == 2
    assert cost(OVERLOADS, "ip", parse_cidr("1.2.3.4/8")) == 1
    assert cost(OVERLOADS, "ip.isCanonical", "255.255.255.255") == 3
    assert cost(OVERLOADS, "containsIP", parse_cidr("::1/128"), "::1") == 5
    assert cost(OVERLOADS, "containsCIDR", parse_cidr("::1/128"), parse_cidr("::1/64")) == 7
