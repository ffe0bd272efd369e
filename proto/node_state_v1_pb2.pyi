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
    __slots__ = ("held", "blocked", "busy", "let_go")
    HELD_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedScalarFieldContainer[str]
    blocked: _containers.RepeatedCompositeFieldContainer[BlockedPlacement]
    busy: _containers.RepeatedScalarFieldContainer[str]
    let_go: int
    def __init__(self, held: _Optional[_Iterable[str]] = ..., blocked: _Optional[_Iterable[_Union[BlockedPlacement, _Mapping]]] = ..., busy: _Optional[_Iterable[str]] = ..., let_go: _Optional[int] = ...) -> None: ...

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
