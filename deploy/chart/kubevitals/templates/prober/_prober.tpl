{{/* What the role `prober` adds to its pods, in cluster mode (`prober`) and in node mode (`prober-node`). */}}

{{- define "kubevitals.prober.lease" -}}
{{- include "kubevitals.fullname" . }}-prober
{{- end -}}

{{- define "kubevitals.prober.readsProbes" -}}
{{- if or .Values.prober.config .Values.prober.existingConfigMap }}true{{ end -}}
{{- end -}}

{{- define "kubevitals.prober.configMap" -}}
{{- default (printf "%s-prober" (include "kubevitals.fullname" .)) .Values.prober.existingConfigMap -}}
{{- end -}}

{{/* Workload Identity of GKE. */}}
{{- define "kubevitals.prober.accountAnnotations" -}}
{{- with .Values.prober.gcm.serviceAccount -}}
iam.gke.io/gcp-service-account: {{ . }}
{{- end -}}
{{- end -}}

{{/* Flags of both modes. */}}
{{- define "kubevitals.prober.commonArgs" -}}
{{- with .Values.prober -}}
{{- range .providers }}
- --provider={{ . }}
{{- end }}
- --listen-address=0.0.0.0:{{ int .containerPort }}
{{- with .reportInterval }}
- --report-interval={{ . }}
{{- end }}
{{- with .metricPrefix }}
- --metric-prefix={{ . }}
{{- end }}
{{- if include "kubevitals.prober.readsProbes" $ }}
- --probes=/etc/kubevitals/probes/probes.yaml
{{- end }}
{{- with .gcm.projectId }}
- --gcm-project={{ . }}
{{- end }}
{{- with .gcm.location }}
- --gcm-location={{ . }}
{{- end }}
{{- with .gcm.clusterName }}
- --gcm-cluster={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.args" -}}
- --mode=cluster
{{- include "kubevitals.prober.commonArgs" . }}
- --leader-elect-resource-name={{ include "kubevitals.prober.lease" . }}
{{- with .Values.prober.defaultArgs }}
{{ toYaml . }}
{{- end }}
{{- with .Values.prober.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober-node.args" -}}
- --mode=node
{{- include "kubevitals.prober.commonArgs" . }}
- --node-name=$(NODE_NAME)
{{- with .Values.prober.node.mesh }}
{{- if .enabled }}
- --mesh-peers={{ int .peers }}
{{- end }}
{{- end }}
{{- with .Values.prober.node.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.env" -}}
{{- $fields := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" "POD_IP" "status.podIP" "NODE_NAME" "spec.nodeName" "NODE_IP" "status.hostIP" -}}
{{- range $name, $path := $fields }}
- name: {{ $name }}
  valueFrom:
    fieldRef:
      fieldPath: {{ $path }}
{{- end }}
{{- with .Values.prober.otlp.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.prober.otlp.protocol }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.prober.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.ports" -}}
- name: admin
  containerPort: {{ int .Values.prober.containerPort }}
  protocol: TCP
{{- end -}}

{{/* A folder, not a file: the kubelet replaces the files of a folder when the ConfigMap changes. */}}
{{- define "kubevitals.prober.mounts" -}}
{{- if include "kubevitals.prober.readsProbes" . }}
- name: probes
  mountPath: /etc/kubevitals/probes
  readOnly: true
{{- end }}
{{- with .Values.prober.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.volumes" -}}
{{- if include "kubevitals.prober.readsProbes" . }}
- name: probes
  configMap:
    name: {{ include "kubevitals.prober.configMap" . }}
{{- end }}
{{- with .Values.prober.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* For a Prometheus without the operator. */}}
{{- define "kubevitals.prober.annotations" -}}
{{- if not .Values.prober.podMonitor.enabled -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.prober.containerPort | quote }}
{{- end -}}
{{- end -}}

{{/* Probes of the kubelet, Prometheus, peers of the mesh. */}}
{{- define "kubevitals.prober.ingress" -}}
- ports:
    - port: {{ int .Values.prober.containerPort }}
      protocol: TCP
{{- end -}}

{{- define "kubevitals.prober.egress" -}}
{{ toYaml .Values.prober.egress }}
{{- end -}}

{{/* What the node mode has in common with the cluster mode. */}}
{{- define "kubevitals.prober-node.env" -}}{{ include "kubevitals.prober.env" . }}{{- end -}}
{{- define "kubevitals.prober-node.ports" -}}{{ include "kubevitals.prober.ports" . }}{{- end -}}
{{- define "kubevitals.prober-node.mounts" -}}{{ include "kubevitals.prober.mounts" . }}{{- end -}}
{{- define "kubevitals.prober-node.volumes" -}}{{ include "kubevitals.prober.volumes" . }}{{- end -}}
{{- define "kubevitals.prober-node.annotations" -}}{{ include "kubevitals.prober.annotations" . }}{{- end -}}
{{- define "kubevitals.prober-node.ingress" -}}{{ include "kubevitals.prober.ingress" . }}{{- end -}}
{{- define "kubevitals.prober-node.egress" -}}{{ include "kubevitals.prober.egress" . }}{{- end -}}
