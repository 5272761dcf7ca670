# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods as sent by an API server: about 6 KB of JSON, a third of it managedFields."""

from __future__ import annotations

import json
from typing import Any


def pod(number: int, *, version: int = 1) -> dict[str, Any]:
    """Return pod ``number``, with its own resourceVersion; 20 consecutive pods belong to one training job."""
    job, index = divmod(number, 20)
    name = f"llama-{job}-node-0-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, job, index, number, version),
        "spec": _spec(name, job, index),
        "status": _status(number, version),
    }


def line(number: int, *, version: int = 1, event: str = "ADDED") -> bytes:
    """Return the line of a watch for pod ``number``, without the line feed."""
    told = {"type": event, "object": pod(number, version=version)}
    return json.dumps(told, separators=(",", ":")).encode()


def _metadata(name: str, job: int, index: int, number: int, version: int) -> dict[str, Any]:
    return {
        "name": name,
        "generateName": f"llama-{job}-node-0-",
        "namespace": f"team-{job % 10}",
        "uid": f"6f1c2a9e-3b7d-4c55-9a1e-{number:012x}",
        "resourceVersion": str(version * 1_000_000 + number + 1),
        "creationTimestamp": "2026-01-05T08:30:00Z",
        "labels": {
            "batch.kubernetes.io/controller-uid": f"0d9c7a3c-7a44-4a0e-8f7c-{job:012x}",
            "batch.kubernetes.io/job-completion-index": str(index),
            "batch.kubernetes.io/job-name": f"llama-{job}-node-0",
            "jobset.sigs.k8s.io/jobset-name": f"llama-{job}",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
        },
        "annotations": {
            "batch.kubernetes.io/job-completion-index": str(index),
            "jobset.sigs.k8s.io/restart-attempt": "0",
        },
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": f"llama-{job}-node-0",
                "uid": f"0d9c7a3c-7a44-4a0e-8f7c-{job:012x}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [_managed("kube-controller-manager", 14, 1), _managed("kubelet", 10, 2)],
    }


def _managed(manager: str, fields: int, step: int) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": f"2026-01-05T08:30:{step:02d}Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:spec": {
                f'k:{{"name":"field-{number}"}}': {".": {}, "f:name": {}, "f:value": {}, "f:valueFrom": {}}
                for number in range(fields)
            }
        },
    }


def _spec(name: str, job: int, index: int) -> dict[str, Any]:
    env = {
        "PET_NNODES": "20",
        "PET_NPROC_PER_NODE": "8",
        "PET_MASTER_ADDR": f"llama-{job}-node-0-0.llama-{job}",
        "PET_MASTER_PORT": "29500",
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/workspace/cache",
        "DATASET": "s3://datasets/instructions/v3",
    }
    return {
        "containers": [
            {
                "name": "node",
                "image": "registry.example.com/research/llama-train:2.7.1-cuda12.8",
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    "torchrun",
                    "--nnodes=20",
                    "/workspace/train.py",
                    "--config=/workspace/config.yaml",
                ],
                "env": [
                    *({"name": key, "value": value} for key, value in env.items()),
                    {
                        "name": "POD_IP",
                        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
                    },
                ],
                "ports": [{"containerPort": 29500, "protocol": "TCP"}],
                "resources": {
                    "limits": {"cpu": "32", "memory": "512Gi", "nvidia.com/gpu": "8"},
                    "requests": {"cpu": "32", "memory": "512Gi", "nvidia.com/gpu": "8"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {"mountPath": "/workspace", "name": "workspace"},
                    {"mountPath": "/dev/shm", "name": "shm"},
                    {
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        "name": "kube-api-access-x7k2p",
                        "readOnly": True,
                    },
                ],
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "hostname": name,
        "nodeName": f"gpu-{index:03d}.cluster.example.com",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "subdomain": f"llama-{job}",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "volumes": [
            {"name": "workspace", "persistentVolumeClaim": {"claimName": "research"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {
                "name": "kube-api-access-x7k2p",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                "name": "kube-root-ca.crt",
                            }
                        },
                    ],
                },
            },
        ],
    }


def _status(number: int, version: int) -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [
            {
                "lastProbeTime": None,
                "lastTransitionTime": f"2026-01-05T08:30:{version % 60:02d}Z",
                "status": "True",
                "type": kind,
            }
            for kind in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [
            {
                "containerID": f"containerd://{number:064x}",
                "image": "registry.example.com/research/llama-train:2.7.1-cuda12.8",
                "imageID": f"registry.example.com/research/llama-train@sha256:{7:064x}",
                "lastState": {},
                "name": "node",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": "2026-01-05T08:30:04Z"}},
            }
        ],
        "hostIP": "10.0.12.7",
        "podIP": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}",
        "qosClass": "Guaranteed",
        "startTime": "2026-01-05T08:30:01Z",
    }
