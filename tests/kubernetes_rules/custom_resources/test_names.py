"""Names of custom resources are accepted unless another definition of the group has them."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.custom_resources.names import ESTABLISHED, names_decision


def _definition(plural: str, kind: str, *short_names: str, accepted: bool = False) -> dict[str, Any]:
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    full: dict[str, Any] = names | ({"shortNames": list(short_names)} if short_names else {})
    status = {"acceptedNames": full} if accepted else {}
    return {"spec": {"group": "example.com", "names": full}, "status": status}


def test_free_names_are_accepted_and_the_api_is_then_installed() -> None:
    crd = _definition("widgets", "Widget", "w")

    decision = names_decision(crd, [])

    assert decision.changes(crd)
    assert decision.accepted_names == crd["spec"]["names"]
    assert decision.names_accepted["status"] == "True"
    assert decision.established["reason"] == "Installing"


def test_a_name_of_another_definition_is_refused_and_the_others_are_accepted() -> None:
    crd = _definition("widgets", "Gadget")

    decision = names_decision(crd, [_definition("widgets", "Widget", accepted=True)])

    assert decision.names_accepted == {
        "type": "NamesAccepted",
        "status": "False",
        "reason": "PluralConflict",
        "message": '"widgets" is already in use',
    }
    assert decision.accepted_names["kind"] == "Gadget"
    assert "plural" not in decision.accepted_names
    assert decision.established["reason"] == "NotAccepted"


def test_all_short_names_that_are_taken_are_named() -> None:
    taken = _definition("others", "Other", "a", "b", accepted=True)

    decision = names_decision(_definition("widgets", "Widget", "a", "b", "c"), [taken])

    assert decision.names_accepted["message"] == '["a" is already in use, "b" is already in use]'


def test_names_in_another_group_do_not_conflict() -> None:
    other = _definition("widgets", "Widget", accepted=True)
    other["spec"]["group"] = "example.org"

    assert names_decision(_definition("widgets", "Widget"), [other]).names_accepted["status"] == "True"


def test_a_served_api_stays_established_when_a_new_name_is_taken() -> None:
    crd = _definition("widgets", "Widget", accepted=True)
    crd["status"]["conditions"] = [dict(ESTABLISHED)]
    crd["spec"]["names"] = {**crd["spec"]["names"], "kind": "Other"}

    decision = names_decision(crd, [_definition("others", "Other", accepted=True)])

    assert decision.established == ESTABLISHED
    assert decision.accepted_names["kind"] == "Widget"


def test_nothing_changes_once_the_status_says_what_was_decided() -> None:
    crd = _definition("widgets", "Widget")
    decision = names_decision(crd, [])
    crd["status"] = {"acceptedNames": decision.accepted_names, "conditions": [decision.names_accepted]}

    assert not names_decision(crd, []).changes(crd)
