"""The API server takes what real helm makes of the chart; what cannot work is refused with a sentence."""

import copy

import pytest
import yaml
from click import Context

from controller.__main__ import main as controller_main
from controller.cliques.__main__ import main as cliques_main
from controller.preemptor.__main__ import main as preemptor_main
from controller.webhook.__main__ import main as webhook_main
from driver.kube.paths import NODES
from envtest.client.api import APPLY, FIELD_MANAGER
from gpuctl.web.command import web as page_main
from kubeletplugin.__main__ import main as plugin_main
from kubeletplugin.sharing.mps.__main__ import main as mps_main
from tests.clusters import DRIVER_NAMESPACE, ApiRefused, KubeClient, Object, RealApiServer, object_path
from tests.gpus import parse_file
from tools.testbed.chart import CHART, HELMS, HelmRefused, helm, rendered

POOL = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "rules": [{"offer": "whole"}]}
MPS_RULE = {"shared": {"strategy": "MPS", "shares": 4}}
EVERYTHING: Object = {
    "image": {"repository": "registry.example:5000/gpu-dra", "tag": "v2", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "apiServer": {"host": "fd00::1", "port": "6443"},
    "kubeletRoot": "/data/kubelet",
    "cdiDir": "/etc/cdi",
    "driver": {"root": "/run/nvidia/driver", "cdiHook": "/usr/bin/nvidia-cdi-hook"},
    "logLevel": "debug",
    "gpuNodes": "all",
    "nodeSelector": {"pool": "gpu"},
    "criticalPodsQuota": {"enabled": True},
    "hostNetwork": True,
    "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}},
    "nodeConfig": {
        "rules": [
            {"when": 'gpu.productName == "Tesla T4"', "shared": {"strategy": "TimeSlicing", "shares": 4}}
        ],
        "pools": [
            {**POOL, "rules": [MPS_RULE, {"mig": False}, {"mig": {"layout": {"1g.10gb": 2}}}]},
            {
                "name": "b",
                "nodeSelector": {
                    "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["t4", "l4"]}]
                },
                "rules": [{"shared": [{"strategy": "MPS", "memory": {"step": "5Gi"}}], "offer": "whole"}],
            },
        ],
    },
    "optInClasses": {"gpu": True, "gpu-shared": True, "mig-profiles": True},
    "controller": {"extraArgs": ["--nvml=fake:hgx-h100"], "podAnnotations": {"a": "b"}},
    "plugin": {
        "usedMemoryStatusSeconds": 60,
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "resources": {"requests": {"cpu": 0.1, "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
    },
    "mps": {"enabled": True, "extraArgs": ["--log-level=debug"]},
    "webhook": {"enabled": True, "replicas": 3, "failurePolicy": "Fail"},
    "page": {
        "enabled": True,
        "service": {
            "enabled": True,
            "names": ["gpus.example"],
            "allowedFrom": [{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}],
        },
    },
    "cliques": {"enabled": True, "channels": 16, "imexSocket": "/run/imex/ctl.sock"},
    "preemptor": {"enabled": True, "replicas": 2, "exemptPriorityClasses": ["notebook"], "nominate": True},
    "extraEnv": [{"name": "NO_PROXY", "value": "10.0.0.0/8"}],
    "extraVolumes": [{"name": "gpus", "hostPath": {"path": "/gpus", "type": "Directory"}}],
    "extraVolumeMounts": [{"name": "gpus", "mountPath": "/gpus"}],
    "metrics": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "docsUrl": "https://git.example/gpus",
    },
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    "openshift": {"securityContextConstraints": True},
}
CERT_MANAGER: Object = {"webhook": {"enabled": True, "certificates": {"source": "cert-manager"}}}
VALUES = {"defaults": {}, "everything": EVERYTHING, "cert-manager": CERT_MANAGER}
NOT_SERVED = {"Certificate", "Issuer", "PrometheusRule", "ServiceMonitor", "SecurityContextConstraints"}
"""Kinds that come with cert-manager, the Prometheus operator and OpenShift."""


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_takes_every_object_and_knows_every_field(
    api_server: RealApiServer, name: str
) -> None:
    api = api_server.api
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
    objects = rendered(VALUES[name], kubernetes=f"{api_server.kubernetes}.0")
    taken = [one for one in objects if one["kind"] not in NOT_SERVED]
    assert len(taken) > 20

    refused = {}
    for one in taken:
        path = api.path_of(one, "gpu-dra")
        try:
            with api.stream("PATCH", path, one, content_type=APPLY, query=query) as answer:
                warned = answer.headers.get_all("Warning")
        except ApiRefused as error:
            warned = [str(error)]
        if warned:
            refused[one["kind"], one["metadata"]["name"]] = warned

    assert refused == {}


def test_the_controllers_token_reads_the_labels_of_its_node(api_server: RealApiServer) -> None:
    name, labels = "labelled", {"kubernetes.io/hostname": "labelled"}
    api_server.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    client = KubeClient.connect(
        api_server.service_account_kubeconfig(DRIVER_NAMESPACE, "gpu-dra-controller", name)
    )
    try:
        node = client.get_metadata(object_path(NODES, name))
    finally:
        client.close()

    assert node["metadata"]["labels"] == labels
    assert "status" not in node


@pytest.mark.parametrize("name", VALUES)
def test_both_versions_of_helm_render_the_same(name: str) -> None:
    values = copy.deepcopy(VALUES[name])
    if name == "everything":  # a certificate that helm makes is another one each time
        values["webhook"]["certificates"] = {"source": "secret", "secretName": "mine", "caBundle": "Y2E="}
    three, four = (by_name(rendered(values, program=program)) for program in HELMS)

    assert three == four


PROGRAMS = {
    "gpu-dra-controller": controller_main,
    "gpu-dra-kubeletplugin": plugin_main,
    "gpu-dra-mps": mps_main,
    "gpu-dra-page": page_main,
    "gpu-dra-preemptor": preemptor_main,
    "gpu-dra-cliques": cliques_main,
    "gpu-dra-webhook": webhook_main,
}


@pytest.mark.parametrize("name", VALUES)
def test_the_programs_understand_their_flags(name: str) -> None:
    seen = set()
    for one in rendered(VALUES[name]):
        if one["kind"] in ("DaemonSet", "Deployment"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            (program,) = container["command"]
            main = PROGRAMS[program]
            _, rest, _ = main.make_parser(Context(main)).parse_args(list(container["args"]))
            assert rest == [], program
            seen.add(program)

    always = {"gpu-dra-controller", "gpu-dra-kubeletplugin"}
    assert seen == (PROGRAMS.keys() if name == "everything" else always | (seen & {"gpu-dra-webhook"}))


@pytest.mark.parametrize("name", VALUES)
def test_the_driver_understands_the_node_configuration(name: str) -> None:
    config = by_name(rendered(VALUES[name]))["ConfigMap", "gpu-dra-node-config"]["data"]["config.yaml"]
    file = parse_file(config, "the ConfigMap")

    assert [*file.wrong_elsewhere({})] == []
    if name == "everything":
        assert file.pool_of({"pool": "a"}).name == "a"
        assert len(file.pool_of({"pool": "a"}).rules.rules) == 3
        assert file.pool_of({"gpu": "l4"}).name == "b"
    assert file.pool_of({}).name == ""


@pytest.mark.parametrize("program", HELMS)
def test_helm_lints_it(program: str) -> None:
    assert "0 chart(s) failed" in helm(
        "lint", str(CHART), "--strict", "--kube-version", "1.37.0", program=program
    )


@pytest.mark.parametrize("program", HELMS)
def test_a_cluster_below_the_floor_of_support_is_refused_by_its_version(program: str) -> None:
    with pytest.raises(HelmRefused, match=r"incompatible with Kubernetes v1\.35"):
        rendered(kubernetes="1.35.4", program=program)


REFUSED: dict[str, tuple[Object, str]] = {
    "a page for everybody": (
        {"page": {"enabled": True, "service": {"enabled": True, "names": ["gpus.example"]}}},
        "page.service.allowedFrom is empty",
    ),
    "a page without a name": (
        {"page": {"enabled": True, "service": {"enabled": True, "allowedFrom": [{"podSelector": {}}]}}},
        "page.service.names is empty",
    ),
    "a service without its page": (
        {"page": {"service": {"enabled": True}}},
        "page.service.enabled without page.enabled",
    ),
    "mps without its supervisor": ({"nodeConfig": {"rules": [MPS_RULE]}}, "mps.enabled is false"),
    "mps in a pool without its supervisor": (
        {"nodeConfig": {"pools": [{**POOL, "rules": [{"shared": [MPS_RULE["shared"]]}]}]}},
        "mps.enabled is false",
    ),
    "two pools with one selector": (
        {"nodeConfig": {"pools": [POOL, {**POOL, "name": "b"}]}},
        "the pool b has the same nodeSelector as the pool a",
    ),
    "two pools with one name": ({"nodeConfig": {"pools": [POOL, POOL]}}, "two pools with the name a"),
    "a certificate without its name": (
        {"webhook": {"enabled": True, "certificates": {"source": "secret", "caBundle": "Y2E="}}},
        "webhook.certificates.secretName is empty",
    ),
    "a certificate without who signed it": (
        {"webhook": {"enabled": True, "certificates": {"source": "secret", "secretName": "mine"}}},
        "webhook.certificates.caBundle is empty",
    ),
    "a certificate that is not used": (
        {"webhook": {"enabled": True, "certificates": {"secretName": "mine"}}},
        "with selfSigned they have no effect",
    ),
    "an issuer without a name": (
        {"webhook": {"certificates": {"certManager": {"issuerKind": "ClusterIssuer"}}}},
        "issuerName is empty",
    ),
    "surge on the host's network": ({"hostNetwork": True}, "would need the same ports"),
    "surge and unavailable": (
        {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
        "maxSurge and maxUnavailable cannot both be set",
    ),
    "neither surge nor unavailable": ({"updateStrategy": {"rollingUpdate": {"maxSurge": 0}}}, "are both 0"),
    "no priority class": ({"priorityClassName": ""}, "priorityClassName is empty"),
    "a quota for a class that needs none": (
        {"priorityClassName": "mine", "criticalPodsQuota": {"enabled": True}},
        "need a quota, not mine",
    ),
    "a kubelet's root with dots": ({"kubeletRoot": "/var/lib/../kubelet"}, "kubeletRoot"),
    "a cdi folder below the kubelet's root": (
        {"cdiDir": "/var/lib/kubelet/cdi"},
        "is below the kubelet's root",
    ),
    "an api server without a port": (
        {"apiServer": {"host": "10.0.0.1"}},
        "apiServer.host without apiServer.port",
    ),
    "a monitor of nothing": ({"serviceMonitor": {"enabled": True}}, "metrics.enabled"),
    "alerts about nothing": ({"prometheusRule": {"enabled": True}}, "the rules would have no series"),
    "dashboards of nothing": ({"dashboards": {"enabled": True}}, "the panels would be empty"),
    "affinity and all nodes": (
        {"gpuNodes": "all", "affinity": {"nodeAffinity": {}}},
        "the affinity chooses the nodes",
    ),
    "their compute domains": (
        {"resources": {"computeDomains": {"enabled": True}}},
        "resources.computeDomains.enabled is a value of NVIDIA's chart that has no effect here",
    ),
    "two of theirs, told together": (
        {"fullnameOverride": "gpus", "featureGates": {"DynamicMIG": True}},
        "the admission policies and gpuctl refer to them; featureGates is a value of NVIDIA's chart",
    ),
    "their gates": ({"featureGates": {"MPSSupport": True}}, "there are no feature gates: use mps.enabled"),
    "their folder that is none of the kubelet": (
        {"kubeletPlugin": {"kubeletPluginsDirectoryPath": "/var/lib/kubelet/elsewhere"}},
        "must end with /plugins",
    ),
}
UNKNOWN: dict[str, Object] = {
    "an unknown name": {"imag": {}},
    "an unknown nested name": {"webhook": {"certificates": {"sorce": "secret"}}},
    "a field that no rule has": {"nodeConfig": {"rules": [{"ofer": "whole"}]}},
    "a class that is not there": {"deviceClasses": {"huge": True}},
    "a relative root": {"kubeletRoot": "var/lib/kubelet"},
    "a word that is none": {"logLevel": "loud"},
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("program", HELMS)
def test_what_cannot_work_together_is_refused_with_a_sentence(program: str, case: str) -> None:
    values, sentence = REFUSED[case]
    with pytest.raises(HelmRefused) as refused:
        rendered(values, program=program)

    assert sentence in " ".join(str(refused.value).split())


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_value_that_the_schema_does_not_know_is_refused(case: str) -> None:
    with pytest.raises(HelmRefused, match="schema"):
        rendered(UNKNOWN[case])


THEIRS: Object = {
    "nvidiaDriverRoot": "/run/nvidia/driver",
    "gpuResourcesEnabledOverride": True,
    "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
    "logVerbosity": "6",
    "image": {"repository": "mirror.example/gpu-dra", "tag": "v1"},
    "webhook": {
        "enabled": True,
        "servicePort": 443,
        "containers": {"webhook": {"resources": {"requests": {"cpu": "5m"}}}},
        "tls": {"mode": "cert-manager", "certManager": {"issuerType": "clusterissuer", "issuerName": "ours"}},
    },
    "kubeletPlugin": {
        "kubeletRegistrarDirectoryPath": "/data/kubelet/plugins_registry",
        "kubeletPluginsDirectoryPath": "/data/kubelet/plugins",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "metrics": {"enabled": True},
        "containers": {"gpus": {"env": [{"name": "A", "value": "B"}]}},
    },
}


@pytest.mark.parametrize("program", HELMS)
def test_values_of_nvidias_chart_mean_here_what_they_mean_there(program: str) -> None:
    objects = by_name(rendered(THEIRS, program=program))
    daemons = objects["DaemonSet", "gpu-dra-kubeletplugin"]["spec"]
    pod = daemons["template"]["spec"]
    (container,) = pod["containers"]

    assert container["image"] == "mirror.example/gpu-dra:v1"
    assert {"--host-driver-root=/run/nvidia/driver", "--log-level=debug", "--metrics-addr=:9402"} <= {
        *container["args"]
    }
    assert "--registry-dir=/data/kubelet/plugins_registry" in container["args"]
    assert {"name": "A", "value": "B"} in container["env"]
    assert (pod["tolerations"], pod["affinity"]) == ([{"operator": "Exists"}], {"nodeAffinity": {}})
    assert daemons["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "100%"}
    issuer = objects["Certificate", "gpu-dra-webhook"]["spec"]["issuerRef"]
    assert issuer == {"name": "ours", "kind": "ClusterIssuer"}
    webhook = objects["Deployment", "gpu-dra-webhook"]["spec"]["template"]["spec"]["containers"][0]
    assert webhook["resources"]["requests"]["cpu"] == "5m"


def test_in_another_namespace_the_policies_name_its_service_accounts() -> None:
    objects = rendered({"webhook": {"enabled": True}}, namespace="elsewhere")
    text = yaml.safe_dump_all(objects)

    assert "system:serviceaccount:elsewhere:gpu-dra-kubeletplugin" in text
    assert "serviceaccount:gpu-dra:" not in text
    assert "namespace: gpu-dra" not in text
    assert "gpu-dra-webhook.elsewhere.svc" not in text  # it stands in the certificate alone
