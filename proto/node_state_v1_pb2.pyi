from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("controller",)
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    controller: str
    def __init__(self, controller: _Optional[str] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("held", "blocked", "busy", "let_go", "healed")
    HELD_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    HEALED_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedScalarFieldContainer[str]
    blocked: _containers.RepeatedCompositeFieldContainer[BlockedPlacement]
    busy: _containers.RepeatedScalarFieldContainer[str]
    let_go: int
    healed: _containers.RepeatedCompositeFieldContainer[Healed]
    def __init__(self, held: _Optional[_Iterable[str]] = ..., blocked: _Optional[_Iterable[_Union[BlockedPlacement, _Mapping]]] = ..., busy: _Optional[_Iterable[str]] = ..., let_go: _Optional[int] = ..., healed: _Optional[_Iterable[_Union[Healed, _Mapping]]] = ...) -> None: ...

class Healed(_message.Message):
    __slots__ = ("pci_bus_id", "boottime_milliseconds")
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    BOOTTIME_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    pci_bus_id: str
    boottime_milliseconds: int
    def __init__(self, pci_bus_id: _Optional[str] = ..., boottime_milliseconds: _Optional[int] = ...) -> None: ...

class HasLetGoRequest(_message.Message):
    __slots__ = ("controller", "let_go", "failure")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    controller: str
    let_go: int
    failure: str
    def __init__(self, controller: _Optional[str] = ..., let_go: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class HasLetGoResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnableVirtualFunctionsRequest(_message.Message):
    __slots__ = ("pci_bus_id",)
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    pci_bus_id: str
    def __init__(self, pci_bus_id: _Optional[str] = ...) -> None: ...

class EnableVirtualFunctionsResponse(_message.Message):
    __slots__ = ("failure",)
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    failure: str
    def __init__(self, failure: _Optional[str] = ...) -> None: ...

class HealRequest(_message.Message):
    __slots__ = ("gpu", "reset", "wait_seconds")
    GPU_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    reset: bool
    wait_seconds: int
    def __init__(self, gpu: _Optional[str] = ..., reset: _Optional[bool] = ..., wait_seconds: _Optional[int] = ...) -> None: ...

class HealProgress(_message.Message):
    __slots__ = ("step", "pci_bus_ids", "claims", "processes", "message")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_IDS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    step: str
    pci_bus_ids: _containers.RepeatedScalarFieldContainer[str]
    claims: _containers.RepeatedCompositeFieldContainer[HoldingClaim]
    processes: _containers.RepeatedCompositeFieldContainer[UsingProcess]
    message: str
    def __init__(self, step: _Optional[str] = ..., pci_bus_ids: _Optional[_Iterable[str]] = ..., claims: _Optional[_Iterable[_Union[HoldingClaim, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[UsingProcess, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...

class HoldingClaim(_message.Message):
    __slots__ = ("namespace", "name", "uid")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class UsingProcess(_message.Message):
    __slots__ = ("process_id", "name", "pod_uid")
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    process_id: int
    name: str
    pod_uid: str
    def __init__(self, process_id: _Optional[int] = ..., name: _Optional[str] = ..., pod_uid: _Optional[str] = ...) -> None: ...

class BlockedPlacement(_message.Message):
    __slots__ = ("pci_bus_id", "span", "reason", "message")
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    pci_bus_id: str
    span: Span
    reason: str
    message: str
    def __init__(self, pci_bus_id: _Optional[str] = ..., span: _Optional[_Union[Span, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("start", "size")
    START_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    start: int
    size: int
    def __init__(self, start: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...
