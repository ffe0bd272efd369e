from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Daemon(_message.Message):
    __slots__ = ("name", "devices", "multi_user", "active_thread_percentage", "pinned_memory_mib", "protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    MULTI_USER_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_THREAD_PERCENTAGE_FIELD_NUMBER: _ClassVar[int]
    PINNED_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    multi_user: bool
    active_thread_percentage: int
    pinned_memory_mib: _containers.RepeatedScalarFieldContainer[int]
    protocol: int
    def __init__(self, name: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., multi_user: _Optional[bool] = ..., active_thread_percentage: _Optional[int] = ..., pinned_memory_mib: _Optional[_Iterable[int]] = ..., protocol: _Optional[int] = ...) -> None: ...

class EnsureResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: State
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class State(_message.Message):
    __slots__ = ("daemons", "told_ns")
    DAEMONS_FIELD_NUMBER: _ClassVar[int]
    TOLD_NS_FIELD_NUMBER: _ClassVar[int]
    daemons: _containers.RepeatedCompositeFieldContainer[DaemonState]
    told_ns: int
    def __init__(self, daemons: _Optional[_Iterable[_Union[DaemonState, _Mapping]]] = ..., told_ns: _Optional[int] = ...) -> None: ...

class DaemonState(_message.Message):
    __slots__ = ("name", "running", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    running: bool
    message: str
    def __init__(self, name: _Optional[str] = ..., running: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...
