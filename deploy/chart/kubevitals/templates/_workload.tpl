{{/*
A ServiceAccount, a workload, a PodDisruptionBudget and a NetworkPolicy for one component. Each role of it has the
templates `kubevitals.ROLE.args`, `.env`, `.ports`, `.mounts`, `.volumes`, `.ingress` and `.egress`, which are lists, and
`.annotations` of the pods, which is a map; all may be empty. Input: root, component, roles; optional are `kind`
(`Deployment`), `command` (the subcommand, if it is not the component), `serviceName` of a StatefulSet, `pod`, which are
more fields of the pods, and `accountAnnotations`.
*/}}
{{- define "kubevitals.workload" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $kind := default "Deployment" .kind -}}
{{- $settings := include "kubevitals.settings" . | fromYaml -}}
{{- $name := printf "%s-%s" (include "kubevitals.fullname" $root) $component -}}
{{- $labels := include "kubevitals.labels" (dict "root" $root "component" $component) -}}
{{- $selector := include "kubevitals.selector" . -}}
{{- $parts := dict -}}
{{- range $part := list "args" "env" "ports" "mounts" "volumes" "ingress" "egress" -}}
{{- $items := list -}}
{{- range $role := $.roles -}}
{{- $items = concat $items (include (printf "kubevitals.%s.%s" $role $part) $root | fromYamlArray) -}}
{{- end -}}
{{- $_ := set $parts $part (uniq $items) -}}
{{- end -}}
{{- $annotations := dict -}}
{{- range $role := $.roles -}}
{{- $annotations = mergeOverwrite $annotations (include (printf "kubevitals.%s.annotations" $role) $root | fromYaml) -}}
{{- end -}}
{{- $annotations = mergeOverwrite $annotations (default (dict) $settings.podAnnotations) -}}
{{- if $settings.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "kubevitals.account" . }}
  namespace: {{ include "kubevitals.namespace" $root }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with mergeOverwrite (dict) (default (dict) .accountAnnotations) $settings.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with $settings.serviceAccount.secrets }}
secrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
---
{{- end }}
apiVersion: apps/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  namespace: {{ include "kubevitals.namespace" $root }}
  labels:
    {{- $labels | nindent 4 }}
  {{- with $settings.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if ne $kind "DaemonSet" }}
  replicas: {{ $settings.replicas }}
  {{- end }}
  {{- with .serviceName }}
  serviceName: {{ . }}
  {{- end }}
  {{- if not (kindIs "invalid" $settings.revisionHistoryLimit) }}
  revisionHistoryLimit: {{ $settings.revisionHistoryLimit }}
  {{- end }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  {{- with $settings.updateStrategy }}
  {{ ternary "strategy" "updateStrategy" (eq $kind "Deployment") }}:
    {{- /* Helm merges maps: the default would remain, which another type excludes. */}}
    {{- toYaml (ternary (dict "type" "Recreate") . (eq (default "" .type) "Recreate")) | nindent 4 }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- toYaml (mergeOverwrite (dict) (deepCopy $root.Values.commonLabels) (default (dict) $settings.podLabels) (fromYaml $selector)) | nindent 8 }}
      {{- with $annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "kubevitals.account" . }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      {{- with $settings.schedulerName }}
      schedulerName: {{ . | quote }}
      {{- end }}
      {{- if not (kindIs "invalid" $settings.hostUsers) }}
      hostUsers: {{ $settings.hostUsers }}
      {{- end }}
      {{- if $settings.hostNetwork.enabled }}
      hostNetwork: true
      {{- end }}
      {{- with .pod }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $settings.dnsConfig }}
      dnsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $settings.terminationGracePeriodSeconds }}
      {{- with $settings.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $settings.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        - {{ toYaml (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" (fromYaml $selector)))) | nindent 10 | trim }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ $component }}
          image: {{ include "kubevitals.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- if eq $component "combined" }}
            - run
            - --roles={{ join "," .roles }}
            {{- else }}
            - {{ default $component .command }}
            {{- end }}
            {{- toYaml $parts.args | nindent 12 }}
          {{- with $parts.env }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            {{- toYaml $parts.ports | nindent 12 }}
          {{- with $settings.livenessProbe }}
          livenessProbe:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $settings.readinessProbe }}
          readinessProbe:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $settings.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $settings.securityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $parts.mounts }}
          volumeMounts:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- with $parts.volumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- with $settings.podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ include "kubevitals.namespace" $root }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  {{- if not (kindIs "invalid" .minAvailable) }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  {{- with .unhealthyPodEvictionPolicy }}
  unhealthyPodEvictionPolicy: {{ . }}
  {{- end }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
# API servers and kubelets have addresses of hosts, which no selector finds: they are admitted by port.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  namespace: {{ include "kubevitals.namespace" $root }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- $selector | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- toYaml (concat $parts.ingress $root.Values.networkPolicy.extraIngress) | nindent 4 }}
  egress:
    # The API server, by its Service and by its own port.
    - ports:
        {{- range $root.Values.networkPolicy.apiServerPorts }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
    {{- with concat $parts.egress $root.Values.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}
