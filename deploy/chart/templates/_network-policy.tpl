{{/*
The NetworkPolicy of one component: who may reach it and, if the API server's ports are given, what it may
reach. It takes a dict: root; name, of the component; metrics, the port of its metrics, or 0; serves, the port that
the API server calls, or 0; asks, whether it calls the API server.
Probes come from the node itself, which network policies let through.
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
    # The API server, which no selector can name.
    - ports:
        - port: {{ . }}
    {{- end }}
  {{- end }}
  {{- if $restricted }}
  egress:
    # The API server, which no selector can name.
    - ports:
        {{- range $values.networkPolicy.apiServerPorts }}
        - port: {{ . | int }}
        {{- end }}
        {{- with $values.apiServer.port }}
        - port: {{ . | int }}
        {{- end }}
    # DNS, for an API server that is given by name.
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
  {{- end }}
{{- end }}
{{- end }}
