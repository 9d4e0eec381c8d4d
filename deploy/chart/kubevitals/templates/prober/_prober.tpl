{{/* What the role `prober` adds to its pods, in cluster mode (`prober`) and in node mode (`prober-node`). */}}

{{- define "kubevitals.prober.lease" -}}
{{- include "kubevitals.fullname" . }}-prober
{{- end -}}

{{/* The files of probes of a mode, as a map. Input: root, component. */}}
{{- define "kubevitals.prober.files" -}}
{{- with .root.Values.prober.config }}
both.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq .component "prober" }}
{{- with .root.Values.prober.clusterConfig }}
cluster.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- else }}
{{- with .root.Values.prober.node.config }}
node.yaml: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Workload Identity of GKE. */}}
{{- define "kubevitals.prober.accountAnnotations" -}}
{{- with .Values.prober.gcm.serviceAccount -}}
iam.gke.io/gcp-service-account: {{ . }}
{{- end -}}
{{- end -}}

{{/* Flags of both modes. Input: root, component. */}}
{{- define "kubevitals.prober.commonArgs" -}}
{{- $prober := .root.Values.prober -}}
{{- with $prober.providers }}
- --provider={{ join "," . }}
{{- end }}
- --listen-address=0.0.0.0:{{ int $prober.containerPort }}
{{- with $prober.reportInterval }}
- --report-interval={{ . }}
{{- end }}
{{- with $prober.metricPrefix }}
- --metric-prefix={{ . }}
{{- end }}
- --addon-namespace={{ join "," $prober.addons.namespaces }}
{{- with $prober.addons.rules }}
- --addon-rules={{ . }}
{{- end }}
{{- range $prober.addons.selectors }}
- --addon={{ . }}
{{- end }}
{{- if include "kubevitals.prober.files" . }}
- --probes=/etc/kubevitals/probes
{{- end }}
{{- if $prober.existingConfigMap }}
- --probes=/etc/kubevitals/more-probes
{{- end }}
{{- with $prober.gcm.projectId }}
- --gcm-project={{ . }}
{{- end }}
{{- with $prober.gcm.location }}
- --gcm-location={{ . }}
{{- end }}
{{- with $prober.gcm.clusterName }}
- --gcm-cluster={{ . }}
{{- end }}
{{- with $prober.otlp.endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- with $prober.otlp.protocol }}
- --otlp-protocol={{ . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.args" -}}
- --mode=cluster
{{- include "kubevitals.prober.commonArgs" (dict "root" . "component" "prober") }}
{{- if .Values.prober.node.enabled }}
- --node-prober-selector=app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/component=prober-node
{{- else }}
- --node-prober-selector=
{{- end }}
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
{{- include "kubevitals.prober.commonArgs" (dict "root" . "component" "prober-node") }}
- --node-name=$(NODE_NAME)
{{- with .Values.prober.node.mesh }}
{{- if .enabled }}
- --mesh-coordinator=http://{{ include "kubevitals.fullname" $ }}-prober.{{ include "kubevitals.namespace" $ }}.svc:{{ int $.Values.prober.containerPort }}
- --mesh-peers={{ int .peers }}
- --mesh-interval={{ .interval }}
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
{{- with .Values.prober.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.ports" -}}
- name: admin
  containerPort: {{ int .Values.prober.containerPort }}
  protocol: TCP
{{- end -}}

{{/* Folders, not files: the kubelet replaces the files of a folder when the ConfigMap changes. Input: root, component. */}}
{{- define "kubevitals.prober.modeMounts" -}}
{{- if include "kubevitals.prober.files" . }}
- name: probes
  mountPath: /etc/kubevitals/probes
  readOnly: true
{{- end }}
{{- if .root.Values.prober.existingConfigMap }}
- name: more-probes
  mountPath: /etc/kubevitals/more-probes
  readOnly: true
{{- end }}
{{- with .root.Values.prober.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.modeVolumes" -}}
{{- if include "kubevitals.prober.files" . }}
- name: probes
  configMap:
    name: {{ include "kubevitals.fullname" .root }}-{{ .component }}
{{- end }}
{{- with .root.Values.prober.existingConfigMap }}
- name: more-probes
  configMap:
    name: {{ . }}
{{- end }}
{{- with .root.Values.prober.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.mounts" -}}
{{ include "kubevitals.prober.modeMounts" (dict "root" . "component" "prober") }}
{{- end -}}

{{- define "kubevitals.prober.volumes" -}}
{{ include "kubevitals.prober.modeVolumes" (dict "root" . "component" "prober") }}
{{- end -}}

{{- define "kubevitals.prober-node.mounts" -}}
{{ include "kubevitals.prober.modeMounts" (dict "root" . "component" "prober-node") }}
{{- end -}}

{{- define "kubevitals.prober-node.volumes" -}}
{{ include "kubevitals.prober.modeVolumes" (dict "root" . "component" "prober-node") }}
{{- end -}}

{{/* For a Prometheus without the operator. */}}
{{- define "kubevitals.prober.annotations" -}}
{{- if not .Values.prober.podMonitor.enabled -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.prober.containerPort | quote }}
{{- end -}}
{{- end -}}

{{/* Probes of the kubelet, Prometheus, requests of `/probe`, peers of the mesh. */}}
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
{{- define "kubevitals.prober-node.annotations" -}}{{ include "kubevitals.prober.annotations" . }}{{- end -}}
{{- define "kubevitals.prober-node.ingress" -}}{{ include "kubevitals.prober.ingress" . }}{{- end -}}
{{- define "kubevitals.prober-node.egress" -}}{{ include "kubevitals.prober.egress" . }}{{- end -}}
