{{/* What the pods of several templates have in common. */}}

{{- define "gpu-dra.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: gpu-dra
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{- define "gpu-dra.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "gpu-dra.pull-secrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* On which nodes: all that have a GPU, as far as labels tell. */}}
{{- define "gpu-dra.placement" -}}
priorityClassName: {{ .Values.priorityClassName }}
{{- include "gpu-dra.pull-secrets" . }}
nodeSelector:
  {{- toYaml (merge (dict "kubernetes.io/os" "linux") .Values.nodeSelector) | nindent 2 }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if eq .Values.gpuNodes "labelled" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        # Node Feature Discovery: a PCI device of NVIDIA (10de), of any class, of a 3D controller, of a display.
        {{- range list "pci-10de.present" "pci-0302_10de.present" "pci-0300_10de.present" }}
        - matchExpressions:
            - {key: feature.node.kubernetes.io/{{ . }}, operator: In, values: ["true"]}
        {{- end }}
        # The GPU operator and GPU Feature Discovery.
        - matchExpressions:
            - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- end -}}

{{- define "gpu-dra.update-strategy" -}}
type: {{ .Values.updateStrategy.type }}
{{- if eq .Values.updateStrategy.type "RollingUpdate" }}
rollingUpdate:
  maxSurge: {{ (.Values.updateStrategy.rollingUpdate | default dict).maxSurge | default 0 }}
  maxUnavailable: {{ (.Values.updateStrategy.rollingUpdate | default dict).maxUnavailable | default 0 }}
{{- end }}
{{- end -}}

{{/* Variables of a process that speaks with the API server about its node. */}}
{{- define "gpu-dra.environment" -}}
- name: GPU_DRA_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- if .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- end -}}

{{/* The arguments of all processes on the nodes that say where the driver is. */}}
{{- define "gpu-dra.driver-args" -}}
{{- if eq .Values.driver.root "auto" }}
- --driver-root=auto
- --host-root=/host
{{- else }}
- --driver-root=/driver-root
{{- end }}
{{- end -}}

{{/* HostToContainer: a driver container mounts its root when it is ready, which may be after this pod. */}}
{{- define "gpu-dra.driver-mounts" -}}
- name: driver-root
  mountPath: {{ eq .Values.driver.root "auto" | ternary "/host" "/driver-root" }}
  readOnly: true
  mountPropagation: HostToContainer
# All of /dev: device nodes of GPUs and of MIG capabilities come and go, and a container's own /dev does not follow.
- name: dev
  mountPath: /dev
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the kernel tells of the GPUs; who only reads it can write nothing there. */}}
{{- define "gpu-dra.sys-mount" -}}
- name: sys
  mountPath: /sys
  readOnly: true
{{- end -}}

{{- define "gpu-dra.driver-volumes" -}}
- name: driver-root
  hostPath:
    path: {{ eq .Values.driver.root "auto" | ternary "/" .Values.driver.root }}
    type: {{ has .Values.driver.root (list "auto" "/") | ternary "Directory" "DirectoryOrCreate" }}
- name: dev
  hostPath:
    path: /dev
    type: Directory
- name: sys
  hostPath:
    path: /sys
    type: Directory
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Startup has three minutes; a process that is not alive for half a minute is started anew. Neither depends on a GPU or a driver. */}}
{{- define "gpu-dra.probes" -}}
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{ include "gpu-dra.startup-and-readiness" . }}
{{- end -}}

{{- define "gpu-dra.startup-and-readiness" -}}
startupProbe:
  httpGet: {path: /startupz, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* A process's own variables before those of all, so that its own count: the last of one name does. */}}
{{- define "gpu-dra.extra-env" -}}
{{- range concat .root.Values.extraEnv .own }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end -}}
