{{/* The rights of the prober. */}}

{{/* The only namespace that addons can be in, if there is one: the role watches no more then. */}}
{{- define "kubevitals.prober.addonNamespace" -}}
{{- $namespaces := .Values.prober.addons.namespaces -}}
{{- range .Values.prober.addons.selectors -}}
{{- $name := splitList "=" . | first -}}
{{- if contains "@" $name -}}{{- $namespaces = append $namespaces (splitList "@" $name | last) -}}{{- end -}}
{{- end -}}
{{- $namespaces = uniq $namespaces -}}
{{- if and (eq (len $namespaces) 1) (ne (first $namespaces) "*") -}}{{- first $namespaces -}}{{- end -}}
{{- end -}}

{{/*
A role of Kubernetes in a namespace, or everywhere without one, and its binding. Input: root, component, name, rules;
optional are namespace and comment.
*/}}
{{- define "kubevitals.prober.role" -}}
{{- $labels := include "kubevitals.labels" (dict "root" .root "component" .component) | nindent 4 -}}
{{- range $kind := list "Role" "RoleBinding" }}
---
{{- if and $.comment (eq $kind "Role") }}
# {{ $.comment }}
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if not $.namespace }}Cluster{{ end }}{{ $kind }}
metadata:
  name: {{ $.name }}
  {{- with $.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- $labels }}
{{- if eq $kind "Role" }}
rules:
  {{- $.rules | nindent 2 }}
{{- else }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if not $.namespace }}Cluster{{ end }}Role
  name: {{ $.name }}
subjects:
  {{- include "kubevitals.subject" (dict "root" $.root "role" $.component) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.nodes" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end -}}

{{- define "kubevitals.prober.workloads" -}}
- apiGroups: [apps]
  resources: [daemonsets, deployments]
  verbs: [list, watch]
{{- end -}}

{{- define "kubevitals.prober.pods" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end -}}

{{- define "kubevitals.prober.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "kubevitals.prober.lease" . }}]
  verbs: [get, update]
{{- if .Values.prober.node.enabled }}
{{ include "kubevitals.prober.pods" . }}
{{- end }}
{{- end -}}

{{- define "kubevitals.prober.usage" -}}
- apiGroups: [metrics.k8s.io]
  resources: [pods]
  verbs: [list]
{{- end -}}

{{- define "kubevitals.prober.kubelet" -}}
- apiGroups: [""]
  resources: [nodes/healthz]
  verbs: [get]
{{- end -}}
