"""What kubectl shows otherwise on the embedded cluster on purpose, each with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Lines that are not compared, and why; both are regular expressions for the whole text.

    ``of`` are the commands in whose answers they are left out. Without ``lines`` all lines are.
    """

    why: str
    of: str = ".*"
    lines: str = ".*"


_NO_MANAGERS = "objects that nobody has applied have no managedFields"
_NO_MACHINE = "a node is no machine, and nobody renews a lease for it"
_NO_ACCOUNTS = "pods get no token of their ServiceAccount, and namespaces no certificate of the cluster"
_FEWER_FACTS = "the kubelet says less of containers that it only plays"
_NO_CONTAINERS = "there are no containers to enter"

LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut("the certificate is in the kubeconfig, not in a file beside it", "config view", " .*authority.*"),
    LeftOut(
        "messages have other words",
        "get configmaps -l 'a=b=c'|apply -f unknown-field.yaml|patch configmap settings -p '.'"
        "|apply --server-side .*",
        r"Error from server .*|The request is invalid: .*|error: Apply failed with .*|- \..*",
    ),
    LeftOut(
        "secrets and services are shown with name and age",
        "get (all|cm/settings) .*",
        r"NAME  (TYPE|AGE).*|(secret|service)/.*",
    ),
    LeftOut(
        "revisions are not counted",
        "(get|describe) (deployment|replicaset) .*",
        r'.*deployment.kubernetes.io/.*| +annotations:|Annotations: +<none>| +"?annotations"?: .*',
    ),
    LeftOut(
        "the binaries of Kubernetes are not built",
        "get --raw /version",
        ' "(git|build|go|comp|emul|min[A-Z]|plat).*',
    ),
    LeftOut(
        "the embedded cluster says what has no effect", lines="Warning: an? .* in the embedded cluster: .*"
    ),
    LeftOut(
        _NO_ACCOUNTS,
        ".*configmap.*",
        r"(?:configmap/)?kube-root-ca.crt\b.*|.*\bkube-root-ca.crt:|.*\"kube-root-ca.crt\".*",
    ),
    LeftOut("nobody makes them", "get priorityclasses", "system-.*"),
    LeftOut(
        "only the NoExecute effect of a rule does something",
        "(get|describe) devicetaintrule .*",
        "status:.*|  [cC]onditions:|  - last.*"
        "|    ([mM]essage|[oO]bserved ?Generation|[rR]eason|[sS]tatus|[tT]ype|Last.*):.*",
    ),
    LeftOut(
        "a budget without pods has no event",
        "describe poddisruptionbudget .*",
        "Events:.*|  (Type|----|Normal) .*",
    ),
    LeftOut(_NO_MANAGERS, "get configmap settings -o yaml --show-managed-fields"),
    LeftOut(_NO_MANAGERS, "patch deployment made --subresource=scale .*"),
    LeftOut(
        "errors say the same in other words",
        r"apply -f unknown-field.yaml|get configmaps -l 'a=b=c'|patch configmap settings .*(color\":3.*|\{')",
        "(The request|Error from server).*",
    ),
    LeftOut("a refused pod is shown as Go shows it", "patch pod talker .*", r"[ +-].*|@@ .*"),
    LeftOut(
        _NO_ACCOUNTS,
        "get pod talker -o yaml",
        " *-? ?(volumeMounts|volumes|projected|sources|configMap|items|downwardAPI|fieldRef|path|key"
        "|fieldPath|serviceAccountToken|defaultMode|expirationSeconds|readOnly|recursiveReadOnly|mountPath):.*"
        "|.* name: kube-.*| +apiVersion: v1",
    ),
    LeftOut(
        _NO_ACCOUNTS,
        "describe pod talker",
        " *(Mounts|Volumes|Token.*|ConfigMapName|(ConfigMap)?Optional|DownwardAPI|Type|kube-api.*):.*"
        "|      /var/run/.*",
    ),
    LeftOut(
        _FEWER_FACTS,
        "get pod talker -o yaml",
        " *-? ?(allocatedResources|resources|limits|requests|cpu|memory|user|linux|gid|uid|supplementalGroups"
        "|observedGeneration|containerID|image|hostIPs|podIPs|ip|lastProbeTime):.*| *- 0",
    ),
    LeftOut(_FEWER_FACTS, "describe pod talker", "IPs?:.*|  IP:.*|  (Warning  MissingClusterDNS|Normal) .*"),
    LeftOut(_FEWER_FACTS, "(get )?events .*talker.*"),
    LeftOut(
        "kubectl before 1.34 shows data in any order",
        "describe configmap settings",
        "(size|color):|----|3|red|",
    ),
    LeftOut("events of the same second are in any order", "describe job .*", "  Normal .*"),
    LeftOut(_NO_CONTAINERS, "(exec|cp) talker.*"),
    LeftOut(_NO_MACHINE, "describe node .*"),
    LeftOut(_NO_MACHINE, "get nodes", "node-0 .* v1.37.*"),
)


def without_left_out(line: str, lines: Sequence[str]) -> list[str]:
    """The lines of the answer to a command that are compared."""
    patterns = [re.compile(one.lines) for one in LEFT_OUT if re.fullmatch(one.of, line)]
    return [text for text in lines if not any(pattern.fullmatch(text) for pattern in patterns)]
