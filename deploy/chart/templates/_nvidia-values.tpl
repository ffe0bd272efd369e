{{/* Values of NVIDIA's chart become values of this one, or are refused with a sentence, as nvidia-values.yaml says. .Values is one object for
all templates, and each begins with this: a value that was taken is removed, so that the next run finds nothing to do. */}}
{{- define "gpu-dra.take-nvidia-values" -}}
{{- $refused := list -}}
{{- range (.Files.Get "nvidia-values.yaml" | fromYaml).values -}}
  {{- $names := splitList "." .path -}}
  {{- $holder := $.Values -}}
  {{- range initial $names }}{{ $holder = get $holder . | default dict }}{{ end -}}
  {{- if and (ne .path (.becomes | default "")) (hasKey $holder (last $names)) -}}
    {{- $given := get $holder (last $names) -}}
    {{- $passed := list -}}
    {{- range .passedOver }}{{ $passed = append $passed (toJson .) }}{{ end -}}
    {{- if .refused -}}
      {{- if not (or (kindIs "invalid" $given) (has (toJson $given) $passed)) -}}
        {{- $refused = append $refused (printf "%s is a value of NVIDIA's chart that has no effect here: %s" .path .refused) -}}
      {{- end -}}
    {{- else if not (kindIs "invalid" $given) -}}
      {{- $target := $.Values -}}
      {{- $to := splitList "." .becomes -}}
      {{- range initial $to }}{{ $target = get $target . }}{{ end -}}
      {{- if .mapped -}}
        {{- if not (hasKey .mapped (toString $given)) -}}
          {{- fail (printf "%s: %v is not supported; allowed: %s" .path $given (keys .mapped | sortAlpha | join ", ")) -}}
        {{- end -}}
        {{- $given = get .mapped (toString $given) -}}
      {{- end -}}
      {{- if .suffix -}}
        {{- if not (hasSuffix .suffix $given) -}}
          {{- fail (printf "%s must end with %s: that is the kubelet's folder below its root, and kubeletRoot is set from it" .path .suffix) -}}
        {{- end -}}
        {{- $given = trimSuffix .suffix $given -}}
      {{- end -}}
      {{- $_ := set $target (last $to) $given -}}
    {{- end -}}
    {{- $_ := unset $holder (last $names) -}}
  {{- end -}}
{{- end -}}
{{- with $refused }}{{ fail (join "; " .) }}{{ end -}}
{{- end -}}
