{{/*
The webhook's certificate and key, signed by an authority whose own key nobody keeps. An upgrade keeps the pair that is in the cluster
until two years before its end: the API server would not trust the webhook's pods while they still have an old pair. Without a cluster
(helm template), each rendering makes another pair.
*/}}
{{- define "gpu-dra.self-signed" -}}
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates.source "selfSigned") -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace "gpu-dra-webhook-tls" | default dict -}}
{{- $renewAfter := (($found.metadata | default dict).annotations | default dict) | dig "gpu.nvidia.com/renew-after" "0" | int64 -}}
{{- $names := list (printf "gpu-dra-webhook.%s.svc" .Release.Namespace) -}}
{{- if gt $renewAfter (now | unixEpoch | int64) -}}
ca: {{ index $found.data "ca.crt" }}
certificate: {{ index $found.data "tls.crt" }}
key: {{ index $found.data "tls.key" }}
renewAfter: {{ $renewAfter | toString | quote }}
{{- else -}}
{{- $authority := genCA "gpu-dra-webhook" 3650 -}}
{{- $pair := genSignedCert (first $names) nil $names 3650 $authority -}}
ca: {{ $authority.Cert | b64enc }}
certificate: {{ $pair.Cert | b64enc }}
key: {{ $pair.Key | b64enc }}
renewAfter: {{ add (now | unixEpoch | int64) (mul 2920 86400) | toString | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
