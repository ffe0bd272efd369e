"""Every claim of a call of the kubelet gets its answer, whatever the others of the call are."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletplugin.kubelet.dra_service import DraService
from kubeletplugin.kubelet.wire.claim_call import Call
from proto import dra_v1_pb2 as v1
from tests.abuse.hostile import TEXTS
from tests.abuse.shown import assert_fit_to_be_shown
from tests.clusters import Metrics
from tests.examples import examples
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, PreparedDevice

UIDS = [f"0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c1{digit}" for digit in range(3)]


class Claims:
    """The node's claims, as the process answers for them."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        return self._node.preparer.prepare(claim, call)

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        self._node.preparer.unprepare(claim, call)


@pytest.fixture(scope="module")
def service(node: FakeNode) -> Iterator[DraService]:
    with ThreadPoolExecutor(4) as workers:
        yield DraService(Claims(node), workers, Metrics())


REFS = st.builds(
    ClaimRef,
    st.sampled_from(["team", "other", ""]) | TEXTS,
    st.sampled_from(["a", "b", "c"]) | TEXTS,
    st.sampled_from(UIDS) | TEXTS,
)
CALLS = st.lists(st.tuples(st.booleans(), st.lists(REFS, max_size=5)), max_size=4)


@settings(max_examples=examples(400))
@given(calls=CALLS)
def test_each_claim_is_answered_by_itself_and_nothing_is_an_internal_error(
    node: FakeNode, service: DraService, calls: list[tuple[bool, list[ClaimRef]]]
) -> None:
    for index, uid in enumerate(UIDS):
        node.claim("abc"[index], index, uid=uid)
    for prepares, refs in calls:
        work: Any = service.prepare if prepares else service.unprepare
        answers = work(refs, node.call())
        assert answers.keys() == {ref.uid for ref in refs}
        for answer in answers.values():
            if isinstance(answer, str):
                assert "internal error" not in answer
                assert_fit_to_be_shown(answer)
                v1.NodePrepareResourceResponse(error=answer)
    for uid in UIDS:
        node.preparer.unprepare(ClaimRef("team", "a", uid), node.call())
        node.journal.forget(uid)
    node.api.clear()
