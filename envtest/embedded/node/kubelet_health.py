"""Keeps the health of devices as the streams of plugins reported it last, until it expires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from envtest.embedded.api import unforeseen
from envtest.embedded.node.kubelet_calls import status_code
from envtest.kubelet_api import dra_health_v1_pb2 as device_health

DEFAULT_TIMEOUT_SECONDS = 30.0
# The kubelet waits so long before it opens the stream again.
RETRY_SECONDS = 5.0
_WORDS = {"HEALTHY": "Healthy", "UNHEALTHY": "Unhealthy"}


@dataclass(frozen=True, slots=True)
class ReportedHealth:
    """The health of a device: the API's word, a message, and when it expires (time.monotonic)."""

    health: str
    message: str
    until: float


class HealthCache:
    """The health of all devices, by driver, pool and device. Thread-safe.

    ``changed`` is called when the health or a message has changed.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._reported: dict[str, dict[tuple[str, str], ReportedHealth]] = {}

    def of(self, driver: str, pool: str, device: str) -> dict[str, Any]:
        """``health`` and perhaps ``message`` of a ResourceHealth; Unknown without a report that holds."""
        with self._lock:
            reported = self._reported.get(driver, {}).get((pool, device))
        if reported is None or reported.until < time.monotonic():
            return {"health": "Unknown"}
        return {"health": reported.health, **({"message": reported.message} if reported.message else {})}

    def seconds_to_expiry(self) -> float | None:
        """In how many seconds the first report expires; None when there is none."""
        moment = time.monotonic()
        with self._lock:
            untils = [one.until for reported in self._reported.values() for one in reported.values()]
        left = [until - moment for until in untils if until >= moment]
        # A little later, so that the report has expired by then.
        return min(left) + 0.01 if left else None

    def update(self, driver: str, answer: device_health.NodeWatchResourcesResponse) -> None:
        """Replace the health of a driver's devices by an answer of its stream, which has all of them."""
        moment = time.monotonic()
        reported = {}
        for one in answer.devices:
            seconds = one.health_check_timeout_seconds
            # The plugin may set a timeout for each device; the time counts from here, not from its own clock.
            timeout = float(seconds) if seconds > 0 else DEFAULT_TIMEOUT_SECONDS
            word = _WORDS.get(device_health.HealthStatus.Name(one.health), "Unknown")
            key = (one.device.pool_name, one.device.device_name)
            reported[key] = ReportedHealth(word, one.message, moment + timeout)
        self._put(driver, reported)

    def forget(self, driver: str) -> None:
        """The driver's stream ended."""
        self._put(driver, {})

    def _put(self, driver: str, reported: dict[tuple[str, str], ReportedHealth]) -> None:
        with self._lock:
            before = self._reported.get(driver, {})
            self._reported[driver] = reported
        if _words(before) != _words(reported):
            self._changed()


class HealthWatch:
    """One plugin's health stream: opened again five seconds after its end, unless it is unimplemented."""

    def __init__(self, driver: str, channel: grpc.Channel, service: str, memory: HealthCache) -> None:
        self._driver = driver
        self._memory = memory
        self._watch = channel.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=device_health.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=device_health.NodeWatchResourcesResponse.FromString,
        )
        self._ended = threading.Event()
        self._stream: Any = None

    def run(self) -> None:
        """Follow the stream until ``stop``."""
        while not self._ended.is_set():
            self._stream = self._watch(device_health.NodeWatchResourcesRequest())
            if self._ended.is_set():
                self._stream.cancel()
            try:
                if not self._follow():
                    return
            except Exception as error:  # noqa: BLE001 - the stream is opened again, as after any other end
                unforeseen.note(f"health stream of {self._driver}", error)
            self._ended.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """End the stream and ``run``."""
        self._ended.set()
        if self._stream is not None:
            self._stream.cancel()

    def _follow(self) -> bool:
        """Read one stream to its end; returns whether another try makes sense."""
        try:
            for answer in self._stream:
                self._memory.update(self._driver, answer)
        except grpc.RpcError as error:
            # A plugin that answers UNIMPLEMENTED is not asked again before it registers anew.
            return status_code(error) != grpc.StatusCode.UNIMPLEMENTED
        except ValueError:
            return False  # the channel was closed before the stream began
        finally:
            self._memory.forget(self._driver)
        return True


def _words(reported: dict[tuple[str, str], ReportedHealth]) -> dict[tuple[str, str], tuple[str, str]]:
    return {key: (one.health, one.message) for key, one in reported.items()}
