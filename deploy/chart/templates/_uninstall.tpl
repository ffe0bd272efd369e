{{/*
Whether the uninstallation is among the objects. helm template has no cluster, so it runs no hooks: whoever applied its output would
uninstall. lookup finds nothing without a cluster.
*/}}
{{- define "gpu-dra.has-uninstall" -}}
{{- if or .Values.uninstall.rendered (lookup "v1" "Namespace" "" "kube-system") }}true{{ end }}
{{- end -}}

{{/* The rights have a lower weight than the Job, so they exist when it runs. A failed Job stays, for its log. */}}
{{- define "gpu-dra.uninstall-hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
