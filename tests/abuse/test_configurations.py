"""Whatever a tenant writes as opaque configuration, it is taken or refused, with words that can be shown."""

import json
from typing import Any

from hypothesis import given, settings

from controller.webhook.review import review
from controller.webhook.subject import ReviewMalformed
from tests.abuse.hostile import CONFIGS, DOCUMENTS, VALUES
from tests.abuse.shown import assert_fit_to_be_shown
from tests.controller.webhook.reviewed import asked, claim, config
from tests.examples import examples
from tests.gpus import ClaimBlocked, ClaimRefused, DriverError, MalformedConfig, decode_any
from tests.kubeletplugin.fake_node import FakeNode


@settings(max_examples=examples(400))
@given(DOCUMENTS)
def test_a_document_is_decoded_or_refused_with_the_fields_that_are_wrong(document: Any) -> None:
    try:
        decode_any(document, "spec.config[0]")
    except MalformedConfig as error:
        assert error.errors
        assert_fit_to_be_shown(str(error))


@settings(max_examples=examples(400))
@given(DOCUMENTS, VALUES)
def test_the_webhook_answers_every_object(document: Any, requests: Any) -> None:
    stored = claim({**config(document), "requests": requests})
    try:
        answer = review(asked(stored)).document
    except ReviewMalformed as error:  # the API server would have refused such a list of requests
        assert_fit_to_be_shown(str(error))
        return
    json.dumps(answer).encode()
    status = answer["response"].get("status", {})
    for sentence in (status.get("message", ""), *answer["response"].get("warnings", ())):
        assert_fit_to_be_shown(sentence)


@settings(max_examples=examples(200))
@given(VALUES)
def test_the_webhook_refuses_what_is_no_review(body: Any) -> None:
    try:
        review(body)
    except ReviewMalformed as error:
        assert_fit_to_be_shown(str(error))


@settings(max_examples=examples(400))
@given(configs=CONFIGS)
def test_a_claim_with_any_configuration_is_prepared_or_refused_and_leaves_nothing(
    node: FakeNode, configs: Any
) -> None:
    for ref in (
        node.claim("whole", 0, config=configs),
        node.claim_devices("cut", node.partition(1, "1g.10gb", 6), config=configs),
        node.claim_shares("part", f"{node.partition(2, '3g.40gb', 4)}-mps-2", config=configs),
    ):
        try:
            node.prepare(ref)
        except DriverError as error:
            divided = "does not enforce memory limits" in error.what  # limits may come with a newer driver
            assert isinstance(error, ClaimBlocked if divided else ClaimRefused), error
            assert_fit_to_be_shown(str(error))
            entry = node.journal.get(ref.uid)
            assert entry is None or not entry.holds
            assert not node.spec_path(ref).exists()
        assert node.unprepare(ref) is None
        node.journal.forget(ref.uid)
