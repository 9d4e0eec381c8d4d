{{/* What the role `node` adds to its pods. */}}

{{- define "kubevitals.node.readsHost" -}}
{{- if eq .Values.node.provider "host" }}true{{ end -}}
{{- end -}}

{{- define "kubevitals.node.args" -}}
{{- with .Values.node -}}
- --provider={{ .provider }}
- --node-name=$(NODE_NAME)
- --node-address=$(POD_IP)
- --listen-address=0.0.0.0:{{ int .containerPort }}
- --admin-bind-address=0.0.0.0:{{ int .adminPort }}
- --root-dir=/var/lib/kubevitals
{{- if .tlsSecret }}
- --tls-cert-file=/etc/kubevitals/tls/tls.crt
- --tls-private-key-file=/etc/kubevitals/tls/tls.key
{{- end }}
{{- if .clientCaConfigMap }}
- --client-ca-file=/etc/kubevitals/client-ca/ca.crt
{{- end }}
{{- if not (include "kubevitals.node.readsHost" $) }}
- --max-pods={{ int .virtual.maxPods }}
{{- with .virtual.labels }}
{{- $labels := list }}
{{- range $key, $value := . }}
{{- $labels = append $labels (printf "%s=%s" $key $value) }}
{{- end }}
- --node-labels={{ join "," $labels }}
{{- end }}
{{- with .virtual.taints }}
- --register-with-taints={{ join "," . }}
{{- end }}
{{- end }}
{{- with .args }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubevitals.node.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: {{ ternary "spec.nodeName" "metadata.name" (eq .Values.node.provider "host") }}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with .Values.node.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.node.ports" -}}
- name: https
  containerPort: {{ int .Values.node.containerPort }}
  protocol: TCP
- name: admin
  containerPort: {{ int .Values.node.adminPort }}
  protocol: TCP
{{- end -}}

{{/*
The files of the node have the paths that they have on the node. /proc is there by `hostPID`. Mounts are not propagated:
that needs a shared mount on the node, and all controllers of cgroup v1 are mounted before its kubelet.
*/}}
{{- define "kubevitals.node.mounts" -}}
- name: state
  mountPath: /var/lib/kubevitals
{{- if include "kubevitals.node.readsHost" . }}
- name: cgroup
  mountPath: /sys/fs/cgroup
  readOnly: true
- name: logs
  mountPath: /var/log
  readOnly: true
{{- end }}
{{- if .Values.node.tlsSecret }}
- name: tls
  mountPath: /etc/kubevitals/tls
  readOnly: true
{{- end }}
{{- if .Values.node.clientCaConfigMap }}
- name: client-ca
  mountPath: /etc/kubevitals/client-ca
  readOnly: true
{{- end }}
{{- with .Values.node.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.node.volumes" -}}
- name: state
  {{- toYaml .Values.node.stateVolume | nindent 2 }}
{{- if include "kubevitals.node.readsHost" . }}
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
- name: logs
  hostPath:
    path: /var/log
    type: Directory
{{- end }}
{{- with .Values.node.tlsSecret }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.node.clientCaConfigMap }}
- name: client-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.node.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* For a Prometheus without the operator: metrics of the process. */}}
{{- define "kubevitals.node.annotations" -}}
{{- if not .Values.node.podMonitor.enabled -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.node.adminPort | quote }}
{{- end -}}
{{- end -}}

{{/* The API server (logs, exec), readers of metrics, probes and Prometheus. */}}
{{- define "kubevitals.node.ingress" -}}
- ports:
    - port: {{ int .Values.node.containerPort }}
      protocol: TCP
    - port: {{ int .Values.node.adminPort }}
      protocol: TCP
{{- end -}}

{{- define "kubevitals.node.egress" -}}
{{- end -}}
