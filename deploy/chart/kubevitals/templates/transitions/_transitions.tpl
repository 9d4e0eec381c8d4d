{{/* What the role `transitions` adds to its pods. */}}

{{/* A shard has a Lease of its own, whose name the role completes. */}}
{{- define "kubevitals.transitions.lease" -}}
{{- $name := printf "%s-transitions" (include "kubevitals.fullname" .) -}}
{{- with .Values.transitions.shard -}}
{{- if ne . "0/1" -}}{{- $name = printf "%s-%s" $name (replace "/" "-of-" .) -}}{{- end -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Whether metrics are labelled by what Nodes say. */}}
{{- define "kubevitals.transitions.readsNodes" -}}
{{- if regexMatch "(^|,)\\s*(node_pool|zone)\\s*(,|$)" .Values.transitions.metricLabels }}true{{ end -}}
{{- end -}}

{{- define "kubevitals.transitions.args" -}}
{{- with .Values.transitions -}}
- --listen-address=0.0.0.0:{{ int .containerPort }}
- --leader-elect-resource-name={{ include "kubevitals.fullname" $ }}-transitions
{{- if not .imagePullEvents }}
- --image-pull-events=false
{{- end }}
{{- with .metricLabels }}
- --metric-labels={{ . }}
{{- end }}
{{- with .shard }}
- --shard={{ . }}
{{- end }}
{{- with .defaultArgs }}
{{ toYaml . }}
{{- end }}
{{- with .args }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubevitals.transitions.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with .Values.transitions.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.transitions.ports" -}}
- name: admin
  containerPort: {{ int .Values.transitions.containerPort }}
  protocol: TCP
{{- end -}}

{{- define "kubevitals.transitions.mounts" -}}
{{- with .Values.transitions.extraVolumeMounts }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "kubevitals.transitions.volumes" -}}
{{- with .Values.transitions.extraVolumes }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* For a Prometheus without the operator, which needs honor_labels: docs/transitions.md#scrape. */}}
{{- define "kubevitals.transitions.annotations" -}}
{{- if not .Values.transitions.podMonitor.enabled -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.transitions.containerPort | quote }}
{{- end -}}
{{- end -}}

{{/* Probes and Prometheus. */}}
{{- define "kubevitals.transitions.ingress" -}}
- ports:
    - port: {{ int .Values.transitions.containerPort }}
      protocol: TCP
{{- end -}}

{{- define "kubevitals.transitions.egress" -}}
{{- end -}}
