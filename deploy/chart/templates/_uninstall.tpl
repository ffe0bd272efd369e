{{/* Only helm that speaks with a cluster runs hooks: what is merely rendered would be applied at once, and uninstall. */}}
{{- define "gpu-dra.has-uninstall" -}}
{{- if or .Values.uninstall.rendered (lookup "v1" "Namespace" "" "kube-system") }}true{{ end }}
{{- end -}}

{{- define "gpu-dra.uninstall-hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
