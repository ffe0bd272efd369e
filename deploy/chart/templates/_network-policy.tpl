{{/*
The NetworkPolicy of one component: who may reach it, and, where the API server's ports are given, what it may
reach. Wants a dict: root; name, of the component; metrics, its port, or 0 where it serves none; serves, a port
for the API server, or 0; asks, whether it asks the API server.
Probes come from the node, which network policies let through.
*/}}
{{- define "gpu-dra.network-policy" -}}
{{- $values := .root.Values }}
{{- $scraped := and $values.metrics.enabled .metrics }}
{{- $restricted := and .asks $values.networkPolicy.apiServerPorts }}
{{- if $values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  policyTypes: [Ingress{{ if $restricted }}, Egress{{ end }}]
  {{- if or $scraped .serves }}
  ingress:
    {{- if $scraped }}
    - ports:
        - port: {{ .metrics }}
      {{- with $values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- with .serves }}
    # The API server, of which no selector tells.
    - ports:
        - port: {{ . }}
    {{- end }}
  {{- end }}
  {{- if $restricted }}
  egress:
    # The API server, of which no selector tells.
    - ports:
        {{- range $values.networkPolicy.apiServerPorts }}
        - port: {{ . | int }}
        {{- end }}
        {{- with $values.apiServer.port }}
        - port: {{ . | int }}
        {{- end }}
    # Names, where the API server is given by one.
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
  {{- end }}
{{- end }}
{{- end }}
