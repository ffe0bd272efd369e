"""The plugin's settings: its flags, and the paths that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.devices.names import CHANNELS_DRIVER_NAME, DRIVER_NAME, checked_node_name
from driver.errors import ConfigError
from driver.process import sockets
from driver.roots.driver_roots import DriverRoots
from driver.roots.flag import roots_from_flags
from kubeletplugin.claims.cdi.hook import COPY, HookSource, memory_hook_from_flag
from kubeletplugin.claims.cdi.spec import memory_sockets
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.migration.other_driver import FORMER_CHECKPOINT

_SHOWN_CHARACTERS = 64

IMEX_SOCKET = Path("/etc/nvidia-imex/imex_ctrl.sock")
"""Where NVIDIA's own DRA driver expects the socket of nvidia-imex on a host that runs it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags; ``python -m kubeletplugin --help`` explains each.

    ``roots`` is made from the flags about the driver root.
    """

    node_name: str
    kubeconfig: Path | None
    nvml: str
    roots: DriverRoots
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    cdi_hook: HookSource
    memory_hook: Path | None
    sysfs_root: Path
    mps_dir: Path
    metrics_addr: str
    health_addr: str
    pod_uid: str
    used_memory_status_seconds: int = 0
    channels: bool = False
    imex_socket: Path = IMEX_SOCKET

    @classmethod
    def from_flags(
        cls,
        *,
        driver_root: str,
        host_root: Path,
        host_driver_root: Path | None,
        sysfs_root: Path,
        cdi_hook: str = COPY,
        memory_hook: Path | None = None,
        **flags: Any,
    ) -> Settings:
        """The settings, with defaults for flags that are not given.

        Raises ConfigError for an invalid node name, pod UID or hook, for a socket path that is too long, and
        for contradicting flags about the driver root.
        """
        # Relative paths are made absolute by the properties below, since other processes get them.
        settings = cls(
            roots=roots_from_flags(driver_root, host_root, sysfs_root, host_driver_root),
            sysfs_root=sysfs_root,
            cdi_hook=HookSource.from_flag(cdi_hook),
            memory_hook=memory_hook_from_flag(memory_hook),
            **flags,
        )
        checked_node_name(settings.node_name)
        if settings.pod_uid and not is_safe_uid(settings.pod_uid):
            raise ConfigError(
                f"--pod-uid {settings.pod_uid[:_SHOWN_CHARACTERS]!r} is not a valid UID",
                "use metadata.uid of the pod, or leave it out",
            )
        # The address of a unix socket has room for 108 bytes (sun_path). Better to fail at the start.
        sockets.checked_socket_path(settings.service_socket)
        sockets.checked_socket_path(settings.registration_socket)
        sockets.checked_socket_path(settings.mps_socket)
        sockets.checked_socket_path(settings.memory_socket)
        if not settings.imex_socket.is_absolute():
            raise ConfigError(
                f"--imex-socket {str(settings.imex_socket)[:_SHOWN_CHARACTERS]!r} is not an absolute path",
                "name the socket as it is on the host",
            )
        for socket in settings.channels_sockets if settings.channels else ():
            sockets.checked_socket_path(socket)
        return settings

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder: sockets, journal, locks."""
        return self.plugins_dir.absolute() / DRIVER_NAME

    @property
    def former_checkpoint(self) -> Path:
        """The file in which NVIDIA's own driver, which uses the same folder, lists its prepared claims."""
        return self.data_dir / FORMER_CHECKPOINT

    @property
    def service_socket(self) -> Path:
        """Where the kubelet and the controller reach the plugin."""
        return self.data_dir / sockets.service_socket_name(self.pod_uid)

    @property
    def registration_socket(self) -> Path:
        """Where the kubelet finds the plugin."""
        return sockets.registration_socket(self.registry_dir.absolute(), DRIVER_NAME, self.pod_uid)

    @property
    def channels_dir(self) -> Path:
        """The folder of the DRA driver for IMEX channels."""
        return self.plugins_dir.absolute() / CHANNELS_DRIVER_NAME

    @property
    def channels_sockets(self) -> tuple[Path, Path]:
        """Where the kubelet reaches that driver, and where it finds it."""
        service = self.channels_dir / sockets.service_socket_name(self.pod_uid)
        folder = self.registry_dir.absolute()
        return service, sockets.registration_socket(folder, CHANNELS_DRIVER_NAME, self.pod_uid)

    @property
    def memory_socket(self) -> Path:
        """Where this instance answers the hooks of containers that start with a memory limit."""
        return memory_sockets(self.data_dir) / sockets.memory_socket_name(self.pod_uid)

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's own socket, which lists the devices that containers have."""
        return self.plugins_dir.absolute().parent / "pod-resources" / "kubelet.sock"

    @property
    def mps_socket(self) -> Path:
        """The socket of the node's MPS supervisor."""
        return self.mps_dir.absolute() / SOCKET
