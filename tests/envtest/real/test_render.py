"""The configuration files and command lines of a cluster's components fit together."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

from envtest.client.layout import ClusterLayout
from envtest.real import commands, render
from envtest.real.control_plane import make_users
from envtest.real.render import User
from envtest.real.slots import Slot

LAYOUT = ClusterLayout(Path("/state"))
SLOT = Slot(3)
NODE = LAYOUT.node(1)


def flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a command line by name; a bare flag has an empty value."""
    return {name.lstrip("-"): value for name, _, value in (entry.partition("=") for entry in arguments)}


def test_tokens_file_has_token_user_uid_and_group() -> None:
    users = {"admin": User("root", "t1", "system:masters"), "scheduler": User("sched", "t2")}

    rows = list(csv.reader(render.tokens_csv(users).splitlines()))

    assert rows == [["t1", "root", "admin", "system:masters"], ["t2", "sched", "scheduler"]]


def test_users_have_tokens_of_their_own_and_nodes_are_in_the_nodes_group() -> None:
    users = make_users(2)

    assert len({user.token for user in users.values()}) == len(users) == 5
    assert users["node-1"].name == "system:node:node-1"
    assert users["node-1"].group == "system:nodes"
    assert {name for name, user in users.items() if user.group == "system:masters"} == {"admin"}


def test_kubeconfig_verifies_the_server() -> None:
    config = json.loads(render.kubeconfig("https://127.0.0.1:1", Path("/ca.crt"), "secret"))

    cluster = config["clusters"][0]["cluster"]
    assert cluster == {"server": "https://127.0.0.1:1", "certificate-authority": "/ca.crt"}
    assert config["users"][0]["user"] == {"token": "secret"}
    context = config["contexts"][0]
    assert config["current-context"] == context["name"]
    assert context["context"] == {
        "cluster": config["clusters"][0]["name"],
        "user": config["users"][0]["name"],
    }


def test_kubelet_lets_nobody_in_without_the_certificate() -> None:
    config = json.loads(render.kubelet_configuration(NODE, 1, SLOT, Path("/client.crt")))

    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authentication"]["x509"] == {"clientCAFile": "/client.crt"}
    assert config["readOnlyPort"] == 0


def test_kubelet_and_containerd_of_a_node_meet() -> None:
    kubelet = json.loads(render.kubelet_configuration(NODE, 1, SLOT, Path("/client.crt")))
    containerd = tomllib.loads(render.containerd_configuration(NODE, Path("/binaries")))

    assert kubelet["containerRuntimeEndpoint"] == f"unix://{containerd['grpc']['address']}"
    assert kubelet["cgroupRoot"] == f"/{SLOT.cgroup(1)}"
    assert kubelet["port"] == SLOT.kubelet_port(1)


def test_containerd_reads_cdi_specs_of_its_node_and_keeps_to_its_folder() -> None:
    containerd = tomllib.loads(render.containerd_configuration(NODE, Path("/binaries")))
    runtime = containerd["plugins"]["io.containerd.cri.v1.runtime"]

    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == [str(NODE.cdi_dir)]
    assert runtime["cni"] == {"bin_dirs": ["/binaries"], "conf_dir": str(NODE.cni_dir)}
    assert containerd["plugins"]["io.containerd.nri.v1.nri"] == {"disable": True}
    assert Path(containerd["root"]).parent == Path(containerd["state"]).parent == NODE.folder


def test_pods_of_a_node_get_addresses_of_its_subnet_without_touching_iptables() -> None:
    network = json.loads(render.cni_configuration(NODE, 1, SLOT))["plugins"][0]

    assert network["ipam"]["ranges"] == [[{"subnet": str(SLOT.pod_subnet(1))}]]
    assert network["ipMasq"] is False
    kubelet = json.loads(render.kubelet_configuration(NODE, 1, SLOT, Path("/client.crt")))
    assert kubelet["makeIPTablesUtilChains"] is False


def test_api_server_has_the_rights_of_a_real_one_and_pods_reach_it_but_nobody_without_a_token() -> None:
    given = flags(commands.kube_apiserver(LAYOUT, SLOT, "192.0.2.7", audit=False))

    assert given["authorization-mode"] == "Node,RBAC"
    assert given["enable-admission-plugins"] == "NodeRestriction"
    assert given["bind-address"] == "0.0.0.0"  # noqa: S104 - pods have a network of their own
    assert given["advertise-address"] == "192.0.2.7"
    assert given["anonymous-auth"] == "false"
    assert given["etcd-servers"] == flags(commands.etcd(LAYOUT))["listen-client-urls"]
    assert not [name for name in given if name.startswith("audit")]


def test_audit_is_on_when_asked_for() -> None:
    given = flags(commands.kube_apiserver(LAYOUT, SLOT, "192.0.2.7", audit=True))

    assert given["audit-log-path"] == str(LAYOUT.log("audit"))


def test_controllers_are_not_throttled_and_trust_the_api_server() -> None:
    given = flags(commands.kube_controller_manager(LAYOUT, SLOT))
    scheduler = json.loads(render.scheduler_configuration(Path("/scheduler")))

    assert int(given["kube-api-qps"]) >= 1000
    assert scheduler["clientConnection"]["qps"] >= 1000
    assert given["root-ca-file"] == str(LAYOUT.authority)
    server = flags(commands.kube_apiserver(LAYOUT, SLOT, "192.0.2.7", audit=False))
    assert given["service-account-private-key-file"] == server["service-account-signing-key-file"]


def test_the_same_feature_gates_are_on_everywhere() -> None:
    more = ("DRAListTypeAttributes",)
    parts = [
        commands.kube_apiserver(LAYOUT, SLOT, "192.0.2.7", more, audit=False),
        commands.kube_controller_manager(LAYOUT, SLOT, more),
        commands.kube_scheduler(LAYOUT, SLOT, more),
    ]

    gates = "DRADeviceTaintRules=true,DRAListTypeAttributes=true"
    assert {flags(part)["feature-gates"] for part in parts} == {gates}
