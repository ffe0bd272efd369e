"""What a rule says of virtual machines is read, and what does not go together is told."""

from __future__ import annotations

import pytest

from driver.errors import ConfigError
from driver.policy.config import parse_config


def errors(rule: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "rules")
    return str(refused.value)


@pytest.mark.parametrize(
    ("rule", "form", "beside"),
    [
        ("offer: passthrough", "passthrough", None),
        ("offer: passthrough, passthrough: true", "passthrough", True),
        ("passthrough: true", "whole", True),
        ("passthrough: false", "whole", False),
        ("passthrough: true, shared: {strategy: TimeSlicing, shares: 2}", "shared", True),
        ("passthrough: true, mig: {layout: all-1g}", "partitions", True),
    ],
)
def test_a_rule_offers_passthrough_alone_or_beside_the_other_forms(
    rule: str, form: str, beside: bool | None
) -> None:
    [found] = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "rules").rules
    assert found.policy.form == form
    assert found.policy.more.get("passthrough") is beside


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("passthrough: 1", "rules[0].passthrough: must be true or false"),
        ("passthrough: 'yes'", "rules[0].passthrough: must be true or false"),
        ("offer: passthrough, passthrough: false", "rules[0].passthrough: must not be false"),
        ("offer: passthrough, mig: dynamic", "rules[0].offer: must not be passthrough for partitions"),
        ("offer: passthrough, mig: {layout: all-1g}", "must not be passthrough for partitions"),
        (
            "offer: passthrough, shared: {strategy: TimeSlicing, shares: 2}",
            "rules[0].offer: must not be passthrough with shared",
        ),
    ],
)
def test_what_does_not_go_together_is_told_with_its_path(rule: str, error: str) -> None:
    assert error in errors(rule)
