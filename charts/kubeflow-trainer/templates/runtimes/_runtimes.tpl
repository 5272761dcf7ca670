{{- /*
SPDX-FileCopyrightText: The trainer-controller-manager authors
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{- define "trainer.installer" -}}
{{- printf "%s-runtimes-installer" (include "trainer.fullname" .) -}}
{{- end -}}

{{- /* The runtimes to install, as YAML documents; empty if none is enabled. */ -}}
{{- define "trainer.runtimes" -}}
{{- $all := .Values.runtimes.defaultEnabled -}}
{{- $tune := .Values.runtimes.torchtuneDistributed -}}
{{- $cache := .Values.dataCache.runtimes.torchDistributedWithCache.enabled -}}
{{- if and $cache (not .Values.dataCache.enabled) -}}
{{- fail "dataCache.runtimes.torchDistributedWithCache.enabled requires dataCache.enabled" -}}
{{- end -}}
{{- $tag := printf "v%s" .Chart.AppVersion -}}
{{- $images := dict
  "deepspeed-runtime" .Values.runtimes.deepspeedDistributed.image
  "mlx-runtime" .Values.runtimes.mlxDistributed.image
  "xgboost-runtime" .Values.runtimes.xgboostDistributed.image
  "torchtune-trainer" $tune.image
-}}
{{- $enabled := dict
  "torch-distributed" .Values.runtimes.torchDistributed.enabled
  "deepspeed-distributed" .Values.runtimes.deepspeedDistributed.enabled
  "mlx-distributed" .Values.runtimes.mlxDistributed.enabled
  "jax-distributed" .Values.runtimes.jaxDistributed.enabled
  "xgboost-distributed" .Values.runtimes.xgboostDistributed.enabled
  "torchtune-llama3.2-1b" $tune.llama3_2_1B.enabled
  "torchtune-llama3.2-3b" $tune.llama3_2_3B.enabled
  "torchtune-qwen2.5-1.5b" $tune.qwen2_5_1_5B.enabled
-}}
{{- $wanted := list -}}
{{- range $name, $on := $enabled -}}
{{- if or $all $on -}}{{- $wanted = append $wanted $name -}}{{- end -}}
{{- end -}}
{{- if $cache -}}{{- $wanted = append $wanted "torch-distributed-with-cache" -}}{{- end -}}
{{- range $name := $wanted -}}
{{- $text := $.Files.Get (printf "files/runtimes/%s.yaml" $name) -}}
{{- range $repository, $image := $images -}}
{{- $text = $text | replace (printf "image: ghcr.io/kubeflow/trainer/%s\n" $repository) (printf "image: %s\n" (include "trainer.image" (list $image $tag))) -}}
{{- end -}}
{{- $text = regexReplaceAll "image: (ghcr.io/kubeflow/trainer/[a-z-]+)\n" $text (printf "image: ${1}:%s\n" $tag) -}}
{{- $text = regexReplaceAll "ghcr.io/kubeflow/trainer/data-cache:[A-Za-z0-9._-]+" $text (include "trainer.image" (list $.Values.dataCache.cacheImage $tag)) -}}
{{- $runtime := fromYaml $text -}}
{{- $own := fromYaml (include "trainer.labels" (list "runtimes" $)) -}}
{{- $labels := merge (dict) ($runtime.metadata.labels | default dict) ($.Values.runtimes.commonLabels | default dict) $own -}}
{{- $_ := set $runtime.metadata "labels" $labels -}}
{{- with $.Values.runtimes.terminationMessagePolicy -}}
{{- range $job := $runtime.spec.template.spec.replicatedJobs -}}
{{- range $container := $job.template.spec.template.spec.containers -}}
{{- $_ := set $container "terminationMessagePolicy" $.Values.runtimes.terminationMessagePolicy -}}
{{- end -}}
{{- end -}}
{{- end }}
---
{{ toYaml $runtime }}
{{- end -}}
{{- end -}}

{{- /* The Job of a hook. Argument: (list HOOK SUFFIX SCRIPT CONTEXT). */ -}}
{{- define "trainer.installerJob" -}}
{{- $context := index . 3 -}}
{{- $installer := $context.Values.runtimes.installer -}}
{{- $image := $installer.image -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "trainer.installer" $context }}{{ index . 1 }}
  namespace: {{ $context.Release.Namespace }}
  labels:
    {{- include "trainer.labels" (list "runtimes-installer" $context) | nindent 4 }}
  annotations:
    helm.sh/hook: {{ index . 0 }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  template:
    metadata:
      labels:
        {{- include "trainer.labels" (list "runtimes-installer" $context) | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ include "trainer.installer" $context }}
      {{- with $installer.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: kubectl
          image: {{ printf "%s/%s:%s" $image.registry $image.repository (toString $image.tag) | quote }}
          command: [/bin/sh, -ec]
          args:
            - |
              command -v kubectl || apk add --no-cache kubectl
              {{- index . 2 | nindent 14 }}
          volumeMounts:
            - name: runtimes
              mountPath: /runtimes
              readOnly: true
          {{- with $installer.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      volumes:
        - name: runtimes
          configMap:
            name: {{ include "trainer.installer" $context }}
      {{- range $field := list "nodeSelector" "affinity" "tolerations" }}
      {{- with get $installer $field }}
      {{ $field }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
{{- end -}}
