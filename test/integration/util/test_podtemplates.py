# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The check of pod templates against a real API server, which decides which templates are bad."""

import copy
from typing import Any

import pytest
import yaml
from controller_runtime.client import LiveClient
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import InvalidError

from pkg.util import podtemplate

pytestmark = [pytest.mark.integration, pytest.mark.slow]
JOB = unstructured(GVK("batch", "v1", "Job"))
LONG = "a" * 64

# Changes of a template that the API server accepts: "meta" is its metadata, "pod" its spec, "node" its container.
# fmt: off
TEMPLATES: list[str] = [
    # accepted
    "{}",
    "{node: {resources: {limits: {nvidia.com/gpu: 1}}}}",
    "{node: {resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: '1'}}}}",
    "{node: {resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1024Mi}}}}",
    "{node: {resources: {requests: {cpu: 1500m}, limits: {cpu: 1.5}}}}",
    "{node: {resources: {limits: {hugepages-2Mi: 4Mi, memory: 1Gi}}}}",
    "{node: {resources: {requests: {ephemeral-storage: 1Gi}}}}",
    "{node: {resources: {limits: {kubernetes.io/thing: 1.5}}}}",
    "{node: {resources: {limits: {example.com/a.b_c-d: 1e3}}}}",
    "{node: {resources: {limits: {rdma/hca_shared_devices_a: 1000m}}}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /v}]}}",
    "{pod: {volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]}, node: {volumeMounts: [{name: v, mountPath: /dev/shm}, {name: v, mountPath: /other, subPath: a/b..c}]}}",
    "{pod: {volumes: [{name: v, hostPath: {path: /data}}]}}",
    "{pod: {volumes: [{name: v, hostPath: {path: data/..x, type: DirectoryOrCreate}}]}}",
    "{pod: {volumes: [{name: v, persistentVolumeClaim: {claimName: Any_Name}}]}}",
    "{pod: {volumes: [{name: v, configMap: {name: c, defaultMode: 511, items: [{key: a, path: b/c}]}}]}}",
    "{pod: {volumes: [{name: v, secret: {secretName: s, optional: true}}]}}",
    "{pod: {volumes: [{name: v, nfs: {server: s, path: /x}}]}}",
    "{pod: {volumes: [{name: v, csi: {driver: csi.example.com}}]}}",
    "{pod: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}}",
    "{pod: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}}",
    "{node: {env: [{name: A}, {name: A, value: b}, {name: 'with space'}, {name: a.b-c}, {name: 1A}]}}",
    "{node: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}",
    "{node: {env: [{name: A, value: '', valueFrom: {secretKeyRef: {name: s, key: k}}}]}}",
    "{node: {env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}}",
    "{node: {envFrom: [{configMapRef: {name: c}}, {prefix: P_, secretRef: {name: s, optional: true}}]}}",
    "{node: {ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}, {containerPort: 81, name: http}]}}",
    "{node: {ports: [{containerPort: 80}, {containerPort: 80}]}}",
    "{node: {ports: [{containerPort: 80, name: a-1}, {containerPort: 65535, hostPort: 1}]}}",
    "{pod: {hostNetwork: true}, node: {ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]}}",
    "{pod: {tolerations: [{operator: Exists}]}}",
    "{pod: {tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]}}",
    "{pod: {tolerations: [{key: a, value: b}, {key: a, operator: Equal, value: '', effect: NoExecute, tolerationSeconds: 5}]}}",
    "{pod: {tolerations: [{key: a, operator: Exists, value: ''}]}}",
    "{pod: {nodeSelector: {kubernetes.io/arch: amd64, pool: ''}}}",
    "{meta: {labels: {app.kubernetes.io/name: x, empty: '', Upper_Case.1: V}}}",
    "{meta: {annotations: {Example.COM/Note: 'any @ text', sidecar.istio.io/inject: 'false'}}}",
    "{pod: {serviceAccountName: my.account-1}}",
    "{pod: {priorityClassName: high}}",
    "{pod: {runtimeClassName: nvidia}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}, {key: d, operator: Gt, values: ['5']}]}]}}}}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}, preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}}}",
    "{pod: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}]}}}}",
    "{pod: {affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}}}]}}}}",
    "{pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, labelSelector: {matchLabels: {a: b}}}, {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}",
    "{pod: {securityContext: {runAsNonRoot: true, runAsUser: 0, fsGroup: 1000, fsGroupChangePolicy: Always}}}",
    "{node: {securityContext: {runAsNonRoot: true, runAsUser: 0}}}",
    "{node: {securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN, IPC_LOCK]}}}}",
    "{node: {securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}}",
    "{node: {livenessProbe: {httpGet: {path: /, port: http}}, readinessProbe: {exec: {command: [a]}, successThreshold: 3}, startupProbe: {tcpSocket: {port: 5}, failureThreshold: 30}}}",
    "{node: {readinessProbe: {grpc: {port: 50051}}, lifecycle: {preStop: {sleep: {seconds: 3}}, postStart: {exec: {command: [a]}}}}}",
    "{pod: {initContainers: [{name: init, image: i}]}}",
    "{pod: {initContainers: [{name: init, image: i, restartPolicy: Always, startupProbe: {exec: {command: [a]}}}]}}",
    "{node: {imagePullPolicy: IfNotPresent, terminationMessagePolicy: FallbackToLogsOnError}}",
    "{node: {image: ' odd image!'}}",
    "{pod: {restartPolicy: OnFailure, activeDeadlineSeconds: 1}}",
    "{pod: {dnsPolicy: None, dnsConfig: {nameservers: [1.2.3.4]}}}",
    "{pod: {hostAliases: [{ip: 10.0.0.1, hostnames: [a.b]}]}}",
    "{pod: {imagePullSecrets: [{name: regcred}], schedulerName: 'Any Name', enableServiceLinks: false}}",
    "{pod: {hostname: h, subdomain: s, setHostnameAsFQDN: true}}",
    "{pod: {shareProcessNamespace: true, hostIPC: true}}",
    "{pod: {schedulingGates: [{name: example.com/gate}]}}",
    "{pod: {resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]}, node: {resources: {claims: [{name: gpu}]}}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: relative, subPathExpr: $(POD)}]}}",
    "{pod: {volumes: [{name: v}]}, node: {securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}}",
    "{pod: {preemptionPolicy: Never}}",
    # refused
    "{node: {resources: {requests: {nvidia.com/gpu: 1}}}}",
    "{node: {resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}}}",
    "{node: {resources: {requests: {memory: 8Gi}, limits: {memory: 4Gi}}}}",
    "{node: {resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}}}",
    "{node: {resources: {limits: {nvidia.com/gpu: 0.5}}}}",
    "{node: {resources: {limits: {nvidia.com/gpu: 500m}}}}",
    "{node: {resources: {limits: {gpu: 1}}}}",
    "{node: {resources: {requests: {storage: 1Gi}}}}",
    "{node: {resources: {limits: {cpu: -1}}}}",
    "{node: {resources: {limits: {hugepages-2Mi: 4Mi}}}}",
    "{node: {resources: {requests: {hugepages-2Mi: 4Mi, cpu: 1}}}}",
    "{node: {resources: {limits: {'nvidia.com/': 1}}}}",
    "{node: {resources: {limits: {'NVIDIA.com/gpu': 1}}}}",
    "{node: {resources: {limits: {requests.example.com/gpu: 1}}}}",
    "{node: {resources: {limits: {pods: 1}}}}",
    "{node: {image: ''}}",
    "{node: {name: Node}}",
    "{node: {name: ''}}",
    f"{{node: {{name: {LONG}}}}}",
    "{node: {name: a_b}}",
    "{pod: {containers: []}}",
    "{pod: {containers: [{name: a, image: x}, {name: a, image: y}]}}",
    "{pod: {initContainers: [{name: node, image: x}]}}",
    "{pod: {containers: [{name: a, image: x}, {name: b}]}}",
    "{node: {volumeMounts: [{name: shm, mountPath: /dev/shm}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: ''}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /a, subPath: ../b}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /a, subPath: /b}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /a, subPath: b, subPathExpr: c}]}}",
    "{pod: {volumes: [{name: v}]}, node: {volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]}}",
    "{pod: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}]}}",
    "{pod: {volumes: [{name: v, secret: {secretName: a}, configMap: {name: a}}]}}",
    "{pod: {volumes: [{name: v}, {name: v}]}}",
    "{pod: {volumes: [{name: My_Volume}]}}",
    "{pod: {volumes: [{name: v, persistentVolumeClaim: {claimName: ''}}]}}",
    "{pod: {volumes: [{name: v, secret: {}}]}}",
    "{pod: {volumes: [{name: v, configMap: {}}]}}",
    "{pod: {volumes: [{name: v, hostPath: {path: /a/../b}}]}}",
    "{pod: {volumes: [{name: v, emptyDir: {sizeLimit: -1Gi}}]}}",
    "{pod: {volumes: [{name: v, configMap: {name: c, defaultMode: 512}}]}}",
    "{pod: {volumes: [{name: v, configMap: {name: c, items: [{key: a, path: ../b}]}}]}}",
    "{pod: {volumes: [{name: v, nfs: {server: s, path: x}}]}}",
    "{node: {env: [{name: ''}]}}",
    "{node: {env: [{name: A=B}]}}",
    "{node: {env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}",
    "{node: {env: [{name: A, valueFrom: {}}]}}",
    "{node: {env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}, configMapKeyRef: {name: s, key: k}}}]}}",
    "{node: {env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: ''}}}]}}",
    "{node: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.nmae}}}]}}",
    "{node: {envFrom: [{prefix: A}]}}",
    "{node: {ports: [{containerPort: 0}]}}",
    "{node: {ports: [{containerPort: 70000}]}}",
    "{node: {ports: [{containerPort: 80, protocol: HTTP}]}}",
    "{node: {ports: [{containerPort: 80, name: a}, {containerPort: 81, name: a}]}}",
    "{node: {ports: [{containerPort: 80, name: much-too-long-name}]}}",
    "{node: {ports: [{containerPort: 80, name: '80'}]}}",
    "{node: {ports: [{containerPort: 80, name: Http}]}}",
    "{node: {ports: [{containerPort: 80, hostPort: 1}, {containerPort: 81, hostPort: 1}]}}",
    "{pod: {hostNetwork: true}, node: {ports: [{containerPort: 80, hostPort: 81}]}}",
    "{pod: {tolerations: [{key: a, operator: Exists, value: b}]}}",
    "{pod: {tolerations: [{key: a, operator: In, value: b}]}}",
    "{pod: {tolerations: [{value: b}]}}",
    "{pod: {tolerations: [{key: a, operator: Exists, effect: Never}]}}",
    "{pod: {tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]}}",
    "{pod: {tolerations: [{key: 'a b', operator: Exists}]}}",
    "{pod: {tolerations: [{key: a, value: 'b c'}]}}",
    "{pod: {nodeSelector: {pool: 'gpu nodes'}}}",
    "{pod: {nodeSelector: {'a/b/c': x}}}",
    "{meta: {labels: {owner: ann@example.com}}}",
    f"{{meta: {{labels: {{x: {LONG}}}}}}}",
    "{meta: {labels: {'bad key': x}}}",
    "{meta: {annotations: {'bad key': x}}}",
    "{pod: {serviceAccountName: My_Account}}",
    "{pod: {priorityClassName: High Priority}}",
    "{pod: {runtimeClassName: NVIDIA}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is, values: [b]}]}]}}}}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}}}}",
    "{pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}}",
    "{pod: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}}}",
    "{pod: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ''}]}}}}",
    "{pod: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, podAffinityTerm: {topologyKey: a}}]}}}}",
    "{pod: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]}}}}",
    "{pod: {topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}",
    "{pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Maybe}]}}",
    "{pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]}}",
    "{pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}}",
    "{pod: {restartPolicy: Always}}",
    "{pod: {restartPolicy: never}}",
    "{pod: {activeDeadlineSeconds: 0}}",
    "{node: {livenessProbe: {periodSeconds: 5}}}",
    "{node: {livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}}",
    "{node: {livenessProbe: {exec: {command: []}}}}",
    "{node: {livenessProbe: {tcpSocket: {port: 0}}}}",
    "{node: {livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}}}",
    "{node: {readinessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}}}",
    "{pod: {initContainers: [{name: init, image: i, readinessProbe: {tcpSocket: {port: 1}}}]}}",
    "{pod: {initContainers: [{name: init, image: i, restartPolicy: Sometimes}]}}",
    "{pod: {initContainers: [{name: init}]}}",
    "{node: {securityContext: {privileged: true, allowPrivilegeEscalation: false}}}",
    "{node: {securityContext: {runAsUser: -1}}}",
    "{node: {securityContext: {seccompProfile: {type: Default}}}}",
    "{pod: {securityContext: {fsGroup: -5}}}",
    "{node: {imagePullPolicy: Sometimes}}",
    "{node: {terminationMessagePolicy: Logs}}",
    "{pod: {dnsPolicy: Other}}",
    "{pod: {dnsPolicy: None}}",
    "{pod: {dnsConfig: {nameservers: [localhost]}}}",
    "{pod: {hostAliases: [{ip: x, hostnames: [a]}]}}",
    "{pod: {hostname: a.b}}",
    "{pod: {shareProcessNamespace: true, hostPID: true}}",
    "{pod: {schedulingGates: [{name: a}, {name: a}]}}",
    "{node: {resources: {claims: [{name: gpu}]}}}",
    "{pod: {resourceClaims: [{name: gpu}]}}",
    "{pod: {preemptionPolicy: Always}}",
]
# fmt: on


def job(changes: str) -> dict[str, Any]:
    """Return a Job whose pod template has the changes."""
    made = copy.deepcopy(yaml.safe_load(changes))
    pod = {"restartPolicy": "Never", **made.get("pod", {})}
    pod.setdefault("containers", [{"name": "node", "image": "busybox", **made.get("node", {})}])
    template = {"metadata": made.get("meta", {}), "spec": pod}
    spec = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}


async def test_the_check_finds_what_an_api_server_refuses_and_blames_nothing_else(
    live_client: LiveClient, namespace: str
) -> None:
    good, bad, missed, blamed = 0, 0, [], []
    for changes in TEMPLATES:
        data = job(changes)
        jobs = [{"name": "node", "template": {"spec": data["spec"]}}]
        found = podtemplate.violations({"spec": {"replicatedJobs": jobs}})
        data["metadata"]["namespace"] = namespace
        try:
            await live_client.create(JOB.from_dict(data), dry_run=True)
        except InvalidError as error:
            bad += 1
            if not found:
                missed.append((changes, error.message))
        else:
            good += 1
            if found:
                blamed.append((changes, str(found[0].error)))
    assert not blamed
    assert (good >= 60, bad >= 60) == (True, True)
    assert len(missed) <= bad // 12, missed
