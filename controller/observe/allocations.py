"""Finds the devices of a pool that are allocated to claims, and follows them while that is needed.

Claims cannot be selected by node, and a cluster can have tens of thousands. Pods can: so the pods of the node
are read, and then their claims. The scheduler writes the allocation of a claim before it binds the pod.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from driver.errors import ApiError
from driver.kube.backoff import Backoff
from driver.kube.client import PATIENT_SECONDS, KubeClient
from driver.kube.errors import NotFound
from driver.kube.paths import claim_path
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger
from kubernetes_rules.pod_claims import claim_entries, extended_claim

_PODS = "/api/v1/pods"

_PAGE_SIZE = 500

_log = get_logger(__name__)

_RETRY_SECONDS = (1.0, 60.0)

_Claim = tuple[str, str]
"""Namespace and name."""


def allocated_devices(client: KubeClient, *, node: str, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to claims of the node's pods; raises ApiError."""
    claims = {claim for pod in _pods(client, node) for claim in _claims_of(pod)}
    return frozenset().union(*(_allocated_to(client, claim, driver, pool) for claim in sorted(claims)))


def _allocated_to(client: KubeClient, claim: _Claim, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to the claim now; raises ApiError."""
    try:
        status = client.get(claim_path(*claim), timeout_seconds=PATIENT_SECONDS).get("status") or {}
    except NotFound:
        return frozenset()
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    # Admin access is left out: it does not keep the device from others.
    return frozenset(
        str(result.get("device"))
        for result in results
        if (result.get("driver"), result.get("pool")) == (driver, pool)
        and result.get("adminAccess") is not True
    )


def _pods(client: KubeClient, node: str) -> Iterator[dict[str, Any]]:
    params = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_PAGE_SIZE)}
    while True:
        page = client.get(_PODS, params, timeout_seconds=PATIENT_SECONDS)
        yield from page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        params["continue"] = token


def _claims_of(pod: Mapping[str, Any]) -> frozenset[_Claim]:
    """The claims that a pod uses; none once it has ended, when Kubernetes releases them."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return frozenset()
    names = (*(entry.claim for entry in claim_entries(pod)), extended_claim(pod))
    return frozenset((pod["metadata"]["namespace"], name) for name in names if name)


class ClaimWatch:
    """Reports which devices of the pool claims of the node's pods have, while ``follow`` wants it.

    ``run`` works in the caller's thread until ``stop``. ``on_change`` is called there with the names when
    they have changed, and with no names after ``follow(False)``.
    """

    def __init__(
        self,
        client: KubeClient,
        on_change: Callable[[frozenset[str]], None],
        *,
        node: str,
        driver: str,
        pool: str,
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._node, self._driver, self._pool = node, driver, pool
        self._changed = threading.Condition()
        self._is_wanted = False
        self._stopped = False
        self._watch_ended = threading.Event()
        self._reflector: Reflector | None = None
        self._reported: frozenset[str] = frozenset()
        # The devices of each claim that a pod of the node uses. They stay the same while the pod runs.
        self._devices: dict[_Claim, frozenset[str]] = {}

    def follow(self, wanted: bool) -> None:
        """Begin to watch, or stop it; returns at once."""
        with self._changed:
            if wanted == self._is_wanted:
                return
            self._is_wanted = wanted
            if not wanted:
                self._end_watch()
            self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._end_watch()
            self._changed.notify_all()

    def run(self) -> None:
        """Watch the claims whenever ``follow`` wants it."""
        while (reflector := self._next()) is not None:
            reflector.run()
            # What is not watched is not known any more, so it must not block anything.
            self._devices = {}
            self._report(frozenset())

    def _next(self) -> Reflector | None:
        """Wait until ``follow`` wants a watch; returns the reflector to run, None when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._stopped)
            if self._stopped:
                return None
            self._watch_ended = threading.Event()
            self._reflector = Reflector(
                self._client,
                Selection(_PODS, {"spec.nodeName": self._node}, {}),
                self._watch_ended,
                on_event=lambda _type, _pod: self._report_current(),
                on_list=lambda _pods: self._report_current(),
                on_failure=self._failed,
                backoff=Backoff(*_RETRY_SECONDS),
                concerns=lambda pod: bool(_claims_of(pod)),
            )
            return self._reflector

    def _end_watch(self) -> None:
        """Stop the running reflector. The lock is held."""
        self._watch_ended.set()
        # It waits for the API server; only wake() ends that at once.
        if self._reflector is not None:
            self._reflector.wake()

    def _report_current(self) -> None:
        if self._reflector is None:
            return
        pods, _ = self._reflector.snapshot()
        claims = {claim for pod in pods for claim in _claims_of(pod)}
        self._devices = {claim: devices for claim, devices in self._devices.items() if claim in claims}
        for claim in sorted(claims - self._devices.keys()):
            self._devices[claim] = self._read(claim)
        self._report(frozenset().union(*self._devices.values()))

    def _read(self, claim: _Claim) -> frozenset[str]:
        """The devices of a claim, asked for until the server answers; none if the watch ends before."""
        backoff = Backoff(*_RETRY_SECONDS)
        while True:
            try:
                return _allocated_to(self._client, claim, self._driver, self._pool)
            # A refusal, too: a server that has just started forbids everything until it has read the roles.
            except ApiError as error:
                wait_seconds = backoff.next_seconds(error)
                self._failed(error, wait_seconds)
                if self._watch_ended.wait(wait_seconds):
                    return frozenset()

    def _report(self, names: frozenset[str]) -> None:
        if names != self._reported:
            self._reported = names
            self._on_change(names)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("cannot follow the claims", error=str(error), again_in_seconds=round(wait_seconds, 2))
