{{- /*
SPDX-FileCopyrightText: The trainer-controller-manager authors
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{- define "trainer.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trainer.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trainer.manager" -}}
{{- printf "%s-controller-manager" (include "trainer.fullname" .) -}}
{{- end -}}

{{- define "trainer.secret" -}}
{{- .Values.manager.config.certManagement.webhookSecretName | default (printf "%s-webhook-cert" (include "trainer.name" .)) -}}
{{- end -}}

{{- define "trainer.service" -}}
{{- .Values.manager.config.certManagement.webhookServiceName | default (include "trainer.manager" .) -}}
{{- end -}}

{{- define "trainer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "trainer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The labels of an object. Argument: (list COMPONENT CONTEXT). */ -}}
{{- define "trainer.labels" -}}
{{- $context := index . 1 -}}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "trainer.selectorLabels" $context }}
app.kubernetes.io/version: {{ $context.Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
app.kubernetes.io/part-of: kubeflow
app.kubernetes.io/component: {{ index . 0 }}
{{- with $context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- if and (eq (index . 0) "manager") $context.Values.manager.labels }}
{{ toYaml $context.Values.manager.labels }}
{{- end }}
{{- end -}}

{{- define "trainer.managerSelector" -}}
{{ include "trainer.selectorLabels" . }}
app.kubernetes.io/part-of: kubeflow
app.kubernetes.io/component: manager
{{- with .Values.manager.selectorLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The name of an image. Argument: (list IMAGE TAG), where TAG is the default tag. */ -}}
{{- define "trainer.image" -}}
{{- $image := index . 0 -}}
{{- $prefix := ternary "" (printf "%s/" $image.registry) (has $image.registry (list "" "docker.io")) -}}
{{- printf "%s%s:%s" $prefix $image.repository ($image.tag | default (index . 1) | toString) -}}
{{- end -}}

{{- /* The port of an address such as :8443. */ -}}
{{- define "trainer.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- /* The manager's Configuration. */ -}}
{{- define "trainer.configuration" -}}
{{- $config := deepCopy .Values.manager.config -}}
{{- $names := dict "trainJob" "TrainJob" "trainingRuntime" "TrainingRuntime" "clusterTrainingRuntime" "ClusterTrainingRuntime" -}}
{{- $concurrency := dict -}}
{{- range $kind, $workers := $config.controller.groupKindConcurrency -}}
{{- $key := ternary (printf "%s.trainer.kubeflow.org" (get $names $kind)) $kind (hasKey $names $kind) -}}
{{- $_ := set $concurrency $key $workers -}}
{{- end -}}
{{- $_ := set $config.controller "groupKindConcurrency" $concurrency -}}
{{- $_ := set $config.certManagement "webhookServiceName" (include "trainer.service" .) -}}
{{- $_ := set $config.certManagement "webhookSecretName" (include "trainer.secret" .) -}}
{{- if not $config.featureGates -}}{{- $_ := unset $config "featureGates" -}}{{- end -}}
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
{{ toYaml $config }}
{{- end -}}
