"""What many tests need of clusters, the controller and commands; if a module moves, this file changes."""

import typing

from controller.health.incident_store import IncidentStore
from controller.observe.blocked import with_blocked
from controller.observe.observer import Observer
from controller.plugin.watch import MOST_PLUGINS, PluginWatch
from controller.publish.changeover import Changeover
from controller.webhook.certificate import ServingCertificate
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden, NotFound, Unreachable
from driver.kube.events import EventRecorder, Reference
from driver.kube.paths import object_path
from driver.process.boot import boot_folder
from driver.process.metrics import Metrics
from driver.process.pulse import Pulse
from driver.process.service import Service
from driver.process.sockets import registration_socket, service_socket_name
from envtest.client import paths
from envtest.client.api import ApiClient, objects_in
from envtest.client.errors import ApiRefused, CommandFailed
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.client.waiting import fresh_namespace, wait_for, wait_for_list, wait_gone
from envtest.cluster import Cluster, Process
from envtest.embedded.cluster import EmbeddedCluster, KubeletTimes
from envtest.embedded.server import EmbeddedApiServer
from envtest.real.api_server import RealApiServer
from envtest.real.assets import find_assets
from envtest.real.build import go_programs
from envtest.real.cluster import RealCluster
from gpuctl.__main__ import commands
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.cli.failures import error_text
from gpuctl.cli.unread import Unread
from gpuctl.demo.brisk import BRISK, BRISK_ON_REAL
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from gpuctl.demo.played_programs import GpuPrograms
from gpuctl.explain.answer import explain_claim
from gpuctl.explain.findings import Explanation
from gpuctl.explain.snapshot import Snapshot
from gpuctl.fleet.cluster import views_of
from gpuctl.plan.karpenter import dynamic_resources
from gpuctl.plan.planned import PlannedNode, plan_inventory, plan_node
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.cel.selector import SelectorDevice, compile_selector
from kubernetes_rules.defaults import defaulted_claim_spec
from kubernetes_rules.pod_claims import extended_requests
from kubernetes_rules.validation.dra_kinds import errors_of

# A JSON object: of the API, of a file, or of a process that answers.
Object = dict[str, typing.Any]
