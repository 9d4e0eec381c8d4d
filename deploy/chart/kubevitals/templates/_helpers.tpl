{{/* Names, labels and values that all templates share. A component is what has a workload: a role, or `combined`. */}}

{{- define "kubevitals.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of all names. */}}
{{- define "kubevitals.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "kubevitals.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kubevitals.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kubevitals.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The roles that are enabled and can share a process. A new role is added here. */}}
{{- define "kubevitals.roles" -}}
{{- $roles := list -}}
{{- range $role := list "server" "transitions" -}}
{{- if (index $.Values $role).enabled -}}{{- $roles = append $roles $role -}}{{- end -}}
{{- end -}}
{{- join "," $roles -}}
{{- end -}}

{{/* The component that runs a role, which is another than its own if it shares a process. Input: root, role. */}}
{{- define "kubevitals.component" -}}
{{- ternary "combined" .role (and .root.Values.combined (has .role (list "server" "transitions"))) -}}
{{- end -}}

{{/* Labels of an object. Input: root; component and labels are optional. */}}
{{- define "kubevitals.labels" -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" (toString .root.Chart.AppVersion) -}}
{{- $_ := set $labels "app.kubernetes.io/name" (include "kubevitals.name" .root) -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .root.Release.Name -}}
{{- with .component -}}{{- $_ := set $labels "app.kubernetes.io/component" . -}}{{- end -}}
{{- toYaml (mergeOverwrite (dict) (deepCopy .root.Values.commonLabels) (deepCopy (default (dict) .labels)) $labels) -}}
{{- end -}}

{{/* Labels that select the pods of a component. Input: root, component. */}}
{{- define "kubevitals.selector" -}}
app.kubernetes.io/name: {{ include "kubevitals.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kubevitals.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The values of a component, as YAML: the section of its role, completed by the top level. The server has no section of
its own; `combined` has that of its first role; `prober-node` has the section `node` of the prober. Input: root,
component.
*/}}
{{- define "kubevitals.settings" -}}
{{- $role := .component -}}
{{- if eq $role "combined" -}}{{- $role = include "kubevitals.roles" .root | splitList "," | first -}}{{- end -}}
{{- $top := pick .root.Values "replicas" "revisionHistoryLimit" "updateStrategy" "terminationGracePeriodSeconds" "podDisruptionBudget" "serviceAccount" "resources" "livenessProbe" "readinessProbe" "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "schedulerName" "dnsConfig" "hostUsers" "hostNetwork" "deploymentAnnotations" "podLabels" "podAnnotations" "podSecurityContext" "securityContext" -}}
{{- if eq $role "server" -}}
{{- toYaml $top -}}
{{- else -}}
{{- $own := dict "hostNetwork" dict -}}
{{- $section := index .root.Values $role -}}
{{- if eq $role "prober-node" -}}
{{- $section = .root.Values.prober.node -}}
{{- /* A drain does not evict pods of a DaemonSet, and each node has one. */ -}}
{{- $own = dict "hostNetwork" dict "podDisruptionBudget" dict "topologySpreadConstraints" list -}}
{{- end -}}
{{- range $key, $value := $section -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $own $key $value -}}{{- end -}}
{{- end -}}
{{- $settings := dict -}}
{{- range $key, $value := $top -}}
{{- $_ := set $settings $key (ternary (index $own $key) $value (hasKey $own $key)) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}
{{- end -}}

{{/* The ServiceAccount of a component. Input: root, component. */}}
{{- define "kubevitals.account" -}}
{{- $settings := include "kubevitals.settings" . | fromYaml -}}
{{- with $settings.serviceAccount -}}
{{- if .create -}}
{{- default (printf "%s-%s" (include "kubevitals.fullname" $.root) $.component) .name -}}
{{- else -}}
{{- default "default" .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The subject of bindings of a role. Input: root, role. */}}
{{- define "kubevitals.subject" -}}
- kind: ServiceAccount
  name: {{ include "kubevitals.account" (dict "root" .root "component" (include "kubevitals.component" .)) }}
  namespace: {{ include "kubevitals.namespace" .root }}
{{- end -}}
