{{/* What the role `server` adds to its pods. */}}

{{/* Whether the server makes its certificate and writes its CA into the APIServices. */}}
{{- define "kubevitals.server.ownCertificate" -}}
{{- if has .Values.tls.type (list "kubevitals" "metrics-server") }}true{{ end -}}
{{- end -}}

{{- define "kubevitals.server.managesApiServices" -}}
{{- if and (include "kubevitals.server.ownCertificate" .) (not .Values.apiService.insecureSkipTLSVerify) }}true{{ end -}}
{{- end -}}

{{- define "kubevitals.server.reader" -}}
{{- default (printf "%s-kubelet-reader" (include "kubevitals.fullname" .)) .Values.kubeletReader.name -}}
{{- end -}}

{{/* The Secret with the serving certificate. */}}
{{- define "kubevitals.server.secret" -}}
{{- if eq .Values.tls.type "existingSecret" -}}
{{- required "tls.type=existingSecret needs tls.existingSecret.name" .Values.tls.existingSecret.name -}}
{{- else -}}
{{- include "kubevitals.fullname" . }}-server-tls
{{- end -}}
{{- end -}}

{{- define "kubevitals.server.args" -}}
{{- if and .Values.hostNetwork.enabled (eq (int .Values.containerPort) 10250) -}}
{{- fail "hostNetwork.enabled needs another containerPort: the kubelet has 10250 on every node" -}}
{{- end -}}
{{- $namespace := include "kubevitals.namespace" . -}}
- --secure-port={{ int .Values.containerPort }}
{{- with .Values.defaultArgs }}
{{ toYaml . }}
{{- end }}
- --apiservice-backend={{ $namespace }}/{{ include "kubevitals.fullname" . }}-server
{{- if .Values.kubeletReader.enabled }}
- --kubelet-service-account={{ $namespace }}/{{ include "kubevitals.server.reader" . }}
{{- end }}
{{- if include "kubevitals.server.managesApiServices" . }}
- --manage-apiservices
{{- else if not (include "kubevitals.server.ownCertificate" .) }}
- --tls-cert-file=/etc/kubevitals/tls/tls.crt
- --tls-private-key-file=/etc/kubevitals/tls/tls.key
{{- end }}
{{- if .Values.metrics.enabled }}
- --authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics
{{- end }}
{{- with .Values.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.server.env" -}}
{{- with .Values.extraEnv }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "kubevitals.server.ports" -}}
- name: https
  containerPort: {{ int .Values.containerPort }}
  protocol: TCP
{{- end -}}

{{- define "kubevitals.server.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if not (include "kubevitals.server.ownCertificate" .) }}
- name: tls
  mountPath: /etc/kubevitals/tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.server.volumes" -}}
- name: tmp
  {{- toYaml .Values.tmpVolume | nindent 2 }}
{{- if not (include "kubevitals.server.ownCertificate" .) }}
- name: tls
  secret:
    secretName: {{ include "kubevitals.server.secret" . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.server.annotations" -}}
{{- end -}}

{{/* The API server, probes and Prometheus. */}}
{{- define "kubevitals.server.ingress" -}}
- ports:
    - port: {{ int .Values.containerPort }}
      protocol: TCP
{{- end -}}

{{/* Kubelets. */}}
{{- define "kubevitals.server.egress" -}}
- ports:
    {{- range .Values.networkPolicy.kubeletPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- end -}}
