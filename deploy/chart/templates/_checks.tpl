{{/* Every template begins with this: it takes values of NVIDIA's chart, and refuses combinations that cannot work. */}}
{{- define "gpu-dra.checked" -}}
{{- include "gpu-dra.take-nvidia-values" . -}}
{{- include "gpu-dra.check-nodes" . -}}
{{- include "gpu-dra.check-node-config" . -}}
{{- include "gpu-dra.check-webhook" . -}}
{{- include "gpu-dra.check-page" . -}}
{{- end -}}

{{- define "gpu-dra.check-nodes" -}}
{{- $v := .Values -}}
{{- range $name, $path := dict "kubeletRoot" $v.kubeletRoot "cdiDir" $v.cdiDir "mps.dir" $v.mps.dir -}}
  {{- if or (not (isAbs $path)) (ne (clean $path) $path) (eq $path "/") -}}
    {{- fail (printf "%s: %q must be an absolute path of a folder, without .. and without a / at its end" $name $path) -}}
  {{- end -}}
{{- end -}}
{{- if hasPrefix (printf "%s/" $v.kubeletRoot) (printf "%s/" $v.cdiDir) -}}
  {{- fail (printf "cdiDir: %s is below the kubelet's root; set a CDI folder of the container runtime, /var/run/cdi or /etc/cdi" $v.cdiDir) -}}
{{- end -}}
{{- if and (ne $v.driver.root "auto") (ne (clean $v.driver.root) $v.driver.root) -}}
  {{- fail (printf "driver.root: %q must be auto, or an absolute path without .. and without a / at its end" $v.driver.root) -}}
{{- end -}}
{{- if not $v.priorityClassName -}}
  {{- fail "priorityClassName is empty: other pods could then preempt the driver, and no pod with a claim could start on that node; set a class, for example system-node-critical" -}}
{{- end -}}
{{- /* Without a cluster to ask (helm template), lookup finds nothing at all. */}}
{{- if and (not (hasPrefix "system-" $v.priorityClassName)) (lookup "v1" "Namespace" "" "kube-system") -}}
  {{- if not (lookup "scheduling.k8s.io/v1" "PriorityClass" "" $v.priorityClassName) -}}
    {{- fail (printf "priorityClassName: the cluster has no PriorityClass %s, so no pod could be created; create the class, or set system-node-critical" $v.priorityClassName) -}}
  {{- end -}}
{{- end -}}
{{- if and $v.criticalPodsQuota.enabled (not (hasPrefix "system-" $v.priorityClassName)) -}}
  {{- fail (printf "criticalPodsQuota.enabled: only the classes system-node-critical and system-cluster-critical need a quota, not %s" $v.priorityClassName) -}}
{{- end -}}
{{- with $v.updateStrategy -}}
{{- if eq .type "RollingUpdate" -}}
  {{- $update := .rollingUpdate | default dict -}}
  {{- $surge := not (has (toString ($update.maxSurge | default 0)) (list "0" "0%")) -}}
  {{- $unavailable := not (has (toString ($update.maxUnavailable | default 0)) (list "0" "0%")) -}}
  {{- if and $surge $unavailable -}}
    {{- fail "updateStrategy.rollingUpdate: maxSurge and maxUnavailable cannot both be set; set one of them to 0" -}}
  {{- end -}}
  {{- if not (or $surge $unavailable) -}}
    {{- fail "updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced" -}}
  {{- end -}}
  {{- if and $surge $v.hostNetwork -}}
    {{- fail "hostNetwork with updateStrategy.rollingUpdate.maxSurge: two pods on a node would need the same ports; set maxSurge to 0 and maxUnavailable to 1" -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.affinity (eq $v.gpuNodes "all") -}}
  {{- fail "gpuNodes: all with affinity: the affinity chooses the nodes, so leave gpuNodes at its default" -}}
{{- end -}}
{{- if and $v.apiServer.port (not $v.apiServer.host) -}}
  {{- fail "apiServer.port without apiServer.host: set both, or neither" -}}
{{- end -}}
{{- if and $v.apiServer.host (not $v.apiServer.port) -}}
  {{- fail "apiServer.host without apiServer.port: set both, or neither" -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (not $v.metrics.enabled) -}}
  {{- fail "serviceMonitor.enabled without metrics.enabled: there would be nothing to scrape" -}}
{{- end -}}
{{- if and $v.prometheusRule.enabled (not $v.metrics.enabled) -}}
  {{- fail "prometheusRule.enabled without metrics.enabled: the rules would have no series" -}}
{{- end -}}
{{- if and $v.dashboards.enabled (not $v.metrics.enabled) -}}
  {{- fail "dashboards.enabled without metrics.enabled: the panels would be empty" -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra.check-node-config" -}}
{{- $v := .Values -}}
{{- $rules := $v.nodeConfig.rules -}}
{{- $names := list -}}
{{- $selectors := dict -}}
{{- range $index, $pool := $v.nodeConfig.pools -}}
  {{- if has $pool.name $names -}}
    {{- fail (printf "nodeConfig.pools[%d]: there are two pools with the name %s" $index $pool.name) -}}
  {{- end -}}
  {{- $selector := toJson $pool.nodeSelector -}}
  {{- if hasKey $selectors $selector -}}
    {{- fail (printf "nodeConfig.pools[%d]: the pool %s has the same nodeSelector as the pool %s, which comes first and always wins" $index $pool.name (get $selectors $selector)) -}}
  {{- end -}}
  {{- $_ := set $selectors $selector $pool.name -}}
  {{- $names = append $names $pool.name -}}
  {{- $rules = concat $rules ($pool.rules | default list) -}}
{{- end -}}
{{- range $rules -}}
  {{- range (kindIs "slice" .shared | ternary .shared (list (.shared | default dict))) -}}
    {{- if and (eq (.strategy | default "") "MPS") (not $v.mps.enabled) -}}
      {{- fail "nodeConfig shares GPUs by MPS, but mps.enabled is false: without the MPS supervisor, no pod with such a share could start" -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra.check-webhook" -}}
{{- with .Values.webhook -}}
{{- $certificates := .certificates -}}
{{- if and (eq $certificates.source "secret") .enabled -}}
  {{- if not $certificates.secretName -}}
    {{- fail "webhook.certificates.source is secret, but webhook.certificates.secretName is empty: name the Secret with tls.crt and tls.key" -}}
  {{- end -}}
  {{- if not $certificates.caBundle -}}
    {{- fail "webhook.certificates.source is secret, and webhook.certificates.caBundle is empty: without the CA the API server would not trust the webhook" -}}
  {{- end -}}
{{- end -}}
{{- if and (ne $certificates.source "secret") (or $certificates.secretName $certificates.caBundle) -}}
  {{- fail (printf "webhook.certificates.secretName and caBundle are for the source secret; with %s they have no effect" $certificates.source) -}}
{{- end -}}
{{- $issuer := $certificates.certManager -}}
{{- if and (ne $issuer.issuerKind "selfSigned") (not $issuer.issuerName) -}}
  {{- fail (printf "webhook.certificates.certManager.issuerKind is %s, but issuerName is empty" $issuer.issuerKind) -}}
{{- end -}}
{{- if and (eq $issuer.issuerKind "selfSigned") $issuer.issuerName -}}
  {{- fail "webhook.certificates.certManager.issuerName with issuerKind selfSigned: set issuerKind to Issuer or ClusterIssuer" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra.check-page" -}}
{{- with .Values.page -}}
{{- if .service.enabled -}}
  {{- if not .enabled -}}
    {{- fail "page.service.enabled without page.enabled: there is no page to serve" -}}
  {{- end -}}
  {{- if not .service.allowedFrom -}}
    {{- fail "page.service.enabled, but page.service.allowedFrom is empty: the page has no login, so name the pods of an authenticating proxy" -}}
  {{- end -}}
  {{- if not .service.names -}}
    {{- fail "page.service.enabled, but page.service.names is empty: set the host name that browsers use for the page" -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
