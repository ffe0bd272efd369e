"""What many tests need of the kubelet plugin; if a module moves, this file changes."""

from kubeletplugin.assembly import Parts
from kubeletplugin.claims.cdi.hook import NO_HOOK, NO_NODES, Hook, HookSource
from kubeletplugin.claims.cdi.hooks import hooks_folder
from kubeletplugin.claims.cdi.spec import CdiDevice, Edits, HostPaths, build_spec
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, Peers, claim_key
from kubeletplugin.claims.metadata import MetadataClaim, MetadataDevice, device_attributes
from kubeletplugin.claims.preparer import LateCall
from kubeletplugin.claims.recovery import Recovered
from kubeletplugin.devices.host.driver_files import DriverFiles, InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms, ProgramHangs
from kubeletplugin.devices.host.gpu_nodes import DeviceNode
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse
from kubeletplugin.devices.kinds.partition.record import PartitionRecord, record_of
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.devices.vfio.users import FunctionInUse, FunctionNotMoved, User
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import READY_PART
from kubeletplugin.kubelet.podresources import PodResourcesUnavailable
from kubeletplugin.kubelet.wire.claim_call import ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.containers import ContainerMemory, ContainerName, ContainerStart
from kubeletplugin.kubelet.wire.controllers import Controllers, NotLetGo
from kubeletplugin.kubelet.wire.heal import HealProgress, HealRequest, UsingProcess
from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, MpsState
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name
from kubeletplugin.kubelet.wire.server import SocketServer
from kubeletplugin.reports.device_status import DeviceMemory, HealthTracker
from kubeletplugin.reports.healing.gpu_reset import ResetFailed
from kubeletplugin.reports.published import PublishedDevices
from kubeletplugin.sharing.gpus import NotReady
from kubeletplugin.sharing.mps.folders import DaemonFolder
from kubeletplugin.sharing.mps.processes import end_left_over, mps_processes
from kubeletplugin.sharing.mps_client import MpsClient
