"""The diagrams show all that their tables say, and in words what the picture shows."""

from __future__ import annotations

from tests.gpuctl.svg.pictures import SPACE, boxes, read_picture, words_of
from tools.docs.pictures.claim_flow import PARTIES, STEPS, claim_flow
from tools.docs.pictures.tier_promises import tiers
from tools.docs.pictures.tier_table import OTHERWISE, QUESTIONS, TIERS, Level
from tools.docs.pictures.which_tier import which_tier


def test_every_step_of_a_claim_has_its_number_and_its_words() -> None:
    root = read_picture(claim_flow())

    words = words_of(root)
    assert [one.words for one in STEPS if one.words not in words] == []
    assert all(words.count(str(number)) == 2 for number in range(1, len(STEPS) + 1))
    assert set(PARTIES) <= set(words)
    told = root.findtext(f"{SPACE}desc") or ""
    assert "6, prepared: kubelet calls NodePrepareResources with the claim (plugin)" in told
    assert "8, prepared: plugin makes the partition or share, writes a CDI spec" in told


def test_phases_of_a_claim_come_in_their_order_and_once_each() -> None:
    phases = [one.phase for one in STEPS]
    in_order = list(dict.fromkeys(phases))

    assert phases == sorted(phases, key=in_order.index)
    assert [word for word in words_of(read_picture(claim_flow())) if word in in_order] == in_order


def test_every_question_leads_to_its_classes() -> None:
    root = read_picture(which_tier())

    words = words_of(root)
    assert [word for word in words if word.endswith("?")] == [one.words for one in QUESTIONS]
    for tier in (*(one for question in QUESTIONS for one in question.tiers), OTHERWISE):
        assert ", ".join(tier.classes) in words
    assert words.count("yes") == words.count("no") == len(QUESTIONS)


def test_promises_are_told_in_words_beside_their_colours() -> None:
    root = read_picture(tiers())

    levels = [one.level for tier in TIERS for one in (tier.memory, tier.compute, tier.faults, tier.noise)]
    words = words_of(root)
    shown: tuple[tuple[Level, str, str], ...] = (
        ("own", "near", "its own"),
        ("limited", "middle", "shared, within limits"),
        ("shared", "far", "shared"),
    )
    for level, kind, said in shown:
        assert len(boxes(root, kind)) == words.count(said) == levels.count(level)
