"""Answers the kubelet's prepare and unprepare calls (DRAPlugin, version v1), claim by claim.

Each claim of a call has an entry of its own in the answer, so that one failure does not affect the others.
A gRPC error would make the kubelet discard the whole answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Executor
from typing import TypeVar

import grpc

from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.process.log import operation
from driver.process.metrics.registry import Metrics, Operation
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, Claims, PreparedDevice
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.kubelet.wire.server import unary_method
from proto import dra_v1_pb2 as v1

PACKAGE = "k8s.io.kubelet.pkg.apis.dra"
DRA_V1 = "v1.DRAPlugin"

_MOST_SHOWN = 128
# An answer that comes after the kubelet's deadline is thrown away, with the reasons that are in it.
_ANSWER_SECONDS = 1.0
# A call without a deadline has years left, more than a thread can wait for a lock.
_LONGEST_SECONDS = 3600.0

Done = TypeVar("Done")
Devices = tuple[PreparedDevice, ...]


class DraService:
    """Works on the claims of a call in parallel, and turns their errors into entries of the answer."""

    def __init__(self, claims: Claims, executor: Executor, metrics: Metrics) -> None:
        """Work on ``claims``; ``executor`` runs those of a call that has several."""
        self._claims = claims
        self._executor = executor
        self._metrics = metrics

    def prepare(self, claims: Iterable[ClaimRef], call: Call) -> dict[str, Devices | str]:
        """By claim UID, the devices of the claim, or its error."""
        return self._each("prepare", self._claims.prepare, claims, call)

    def unprepare(self, claims: Iterable[ClaimRef], call: Call) -> dict[str, str | None]:
        """By claim UID, None if the claim is unprepared, or its error."""
        return self._each("unprepare", self._claims.unprepare, claims, call)

    def _each(
        self,
        name: Operation,
        work: Callable[[ClaimRef, Call], Done],
        claims: Iterable[ClaimRef],
        call: Call,
    ) -> dict[str, Done | str]:
        ends_at = time.monotonic() + min(call.remaining_seconds(), _LONGEST_SECONDS) - _ANSWER_SECONDS
        answers: dict[str, Done | str] = {}
        waiting = []
        # A claim that is named twice is done once.
        wanted = {claim.uid: claim for claim in claims}
        # Most calls have one claim, and another thread would slow it down. If its work hangs, the kubelet's
        # next call is told so: it waits for the claim's lock, and no longer than it has time.
        if len(wanted) == 1:
            return {uid: self._one(name, work, claim, call) for uid, claim in wanted.items()}
        for claim in wanted.values():
            try:
                future = self._executor.submit(self._one, name, work, claim, call)
            except RuntimeError:  # the executor is shut down
                answers[claim.uid] = _not_begun(claim)
            else:
                waiting.append((claim, future))
        for claim, future in waiting:
            try:
                answers[claim.uid] = future.result(max(0.0, ends_at - time.monotonic()))
            except CancelledError:
                answers[claim.uid] = _not_begun(claim)
            # The kernel, a disk or NVML makes it wait. It goes on, and the others get their answers in time.
            except TimeoutError:
                answers[claim.uid] = _not_done(name, claim)
        return answers

    def _one(
        self, name: Operation, work: Callable[[ClaimRef, Call], Done], claim: ClaimRef, call: Call
    ) -> Done | str:
        op_id = ""
        try:
            with (
                operation(name, namespace=claim.namespace, claim=claim.name, uid=claim.uid) as op_id,
                self._metrics.operation(name),
            ):
                # The UID becomes part of file names.
                if not is_safe_uid(claim.uid):
                    raise ClaimRefused(
                        f"claim {str(claim)[:_MOST_SHOWN]!r} has an invalid UID {claim.uid[:64]!r}",
                        "use the UID of the API object",
                    )
                return work(claim, call)
        except DriverError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the service boundary: operation() logged the traceback
            return (
                f"internal error in claim {claim}: {type(error).__name__}: look for op {op_id} in the log of"
                " the kubelet plugin on this node and report it (retryable)"
            )


def _not_begun(claim: ClaimRef) -> str:
    return str(ClaimBlocked(f"claim {claim} was not started, since the plugin is stopping"))


def _not_done(name: Operation, claim: ClaimRef) -> str:
    return str(
        ClaimBlocked(
            f"{name} of claim {claim} is still at work, and goes on",
            "it is tried again; if this lasts, look for a hung call in the plugin's log",
        )
    )


def top_level_requests(names: Iterable[str]) -> list[str]:
    """The requests without their sub-requests, each once."""
    # The kubelet compares them with the request that a container names, which never has a sub-request.
    return list(dict.fromkeys(name.partition("/")[0] for name in names))


def handler(service: DraService, registered_ns: Callable[[], int]) -> grpc.GenericRpcHandler:
    """Serves ``service`` as DRAPlugin.

    ``registered_ns()`` is when the kubelet last registered the plugin (CLOCK_BOOTTIME), 0 for not yet.
    """

    def prepare(
        request: v1.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> v1.NodePrepareResourcesResponse:
        # The kubelet fails the pod if any of its claims has no entry, so a claim without devices gets one.
        answer = v1.NodePrepareResourcesResponse()
        for uid, done in service.prepare(_claims(request.claims), _call(context, registered_ns())).items():
            # In a map of protobuf, reading a key makes its entry.
            entry = answer.claims[uid]
            if isinstance(done, str):
                entry.error = done
                continue
            for device in done:
                added = entry.devices.add(
                    request_names=top_level_requests(device.request_names),
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=device.cdi_device_ids,
                )
                # A share and another share of the same device differ only by this id.
                if device.share_id is not None:
                    added.share_id = device.share_id
        return answer

    def unprepare(
        request: v1.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> v1.NodeUnprepareResourcesResponse:
        answer = v1.NodeUnprepareResourcesResponse()
        for uid, error in service.unprepare(_claims(request.claims), _call(context, registered_ns())).items():
            # With an error the pod stays Terminating, and the kubelet calls again.
            answer.claims[uid].error = error or ""
        return answer

    return grpc.method_handlers_generic_handler(
        f"{PACKAGE}.{DRA_V1}",
        {
            "NodePrepareResources": unary_method(
                prepare, v1.NodePrepareResourcesRequest, v1.NodePrepareResourcesResponse
            ),
            "NodeUnprepareResources": unary_method(
                unprepare, v1.NodeUnprepareResourcesRequest, v1.NodeUnprepareResourcesResponse
            ),
        },
    )


def _claims(claims: Iterable[v1.Claim]) -> list[ClaimRef]:
    return [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]


def _call(context: grpc.ServicerContext, registered_ns: int) -> Call:
    # gRPC gives the deadline as a time of day, which may be set while the call is at work.
    ends_at = time.monotonic() + context.time_remaining()
    return Call(
        # The same clock as for registered_ns and in the journal, so that the three can be compared.
        started_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        is_active=context.is_active,
        remaining_seconds=lambda: max(0.0, ends_at - time.monotonic()),
        registered_ns=registered_ns,
    )
