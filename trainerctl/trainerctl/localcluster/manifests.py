# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The initial objects of the cluster: namespaces, permissions, CRDs, webhooks, nodes, runtimes."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from controller_runtime.envtest import Binary, point_at
from controller_runtime.machinery import JSON
from pkg import shipped
from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JOB_SET_NAME_KEY
from pkg.constants import trainer as constants

from trainerctl.localcluster import recycling
from trainerctl.localcluster.access import role_binding, service_account

Manifest = dict[str, JSON]

JOBSET_NAMESPACE: Final = "jobset-system"
JOBSET_ACCOUNT: Final = "jobset-controller-manager"
TRAINER_NAMESPACE: Final = "kubeflow-system"
TRAINER_ACCOUNT: Final = "kubeflow-trainer-controller-manager"
TRAINER_SUBJECT: Final = {
    "kind": "ServiceAccount",
    "name": TRAINER_ACCOUNT,
    "namespace": TRAINER_NAMESPACE,
}
TRAINER_SERVER: Final = f"{defaulted().cert_management.webhook_service_name}.{TRAINER_NAMESPACE}.svc"
"""Pods call the manager under this host name."""
VOLUMES: Final = 16
_RECYCLES: Final = {
    "apiGroups": [""],
    "resources": ["persistentvolumes"],
    "verbs": ["list", "watch", "patch"],
}
_TRAIN_JOBS: Final = {
    "apiGroups": [constants.GROUP],
    "resources": ["trainjobs"],
    "verbs": ["list", "watch"],
}
"""Removed pods are kept until their TrainJob is deleted."""
_RBAC: Final = "rbac.authorization.k8s.io"
_POD_HOOKS: Final = frozenset({"mpod.kb.io", "vpod.kb.io"})


def namespaces() -> list[Manifest]:
    """Return the namespaces of the components."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (JOBSET_NAMESPACE, TRAINER_NAMESPACE)
    ]


def rights(jobset: Binary, kwok: Binary | None, *, gated: Iterable[str] = ()) -> list[Manifest]:
    """Return the service accounts, shipped roles and role bindings of the components.

    JobSet, kwok and the manager get only the permissions of the roles in their manifests. The log server and the
    kubelet of local processes get the permissions that they need. If ``kwok`` is None, pods run as local processes.
    ``gated`` lists folders with more roles, which enabled feature gates need.
    """
    (jobset_role,) = _of_kind(jobset.manifests(), "ClusterRole")
    jobset_role["metadata"]["name"] = JOBSET_ACCOUNT
    account = {"kind": "ServiceAccount", "name": JOBSET_ACCOUNT, "namespace": JOBSET_NAMESPACE}
    ours = [copy.deepcopy(manifest) for manifest in shipped.manifests("rbac")]
    for manifest in ours:
        if manifest["kind"] in {"ServiceAccount", "Role", "RoleBinding"}:
            manifest["metadata"].setdefault("namespace", TRAINER_NAMESPACE)
    return [
        *(_process_rights() if kwok is None else [*_kwok_rights(kwok), *_log_rights()]),
        service_account(JOBSET_NAMESPACE, JOBSET_ACCOUNT),
        jobset_role,
        role_binding(JOBSET_ACCOUNT, account),
        *ours,
        *(each for folder in gated for each in shipped.manifests(folder)),
    ]


def _kwok_rights(kwok: Binary) -> list[Manifest]:
    """Return the shipped permissions of kwok."""
    (role,) = _of_kind(kwok.manifests(), "ClusterRole")
    user = {"kind": "User", "apiGroup": _RBAC, "name": "kwok"}
    return [role, role_binding(role["metadata"]["name"], user)]


def _log_rights() -> list[Manifest]:
    """Return the permissions of the log server, which reads pods, keeps failed pods and recycles volumes."""
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    return _granted("pod-logs", [pods, _TRAIN_JOBS, _RECYCLES])


def _process_rights() -> list[Manifest]:
    """Return the permissions of the kubelet of local processes. It acts as the kubelet of all nodes."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
        {"apiGroups": [""], "resources": ["pods/status", "nodes/status"], "verbs": ["patch"]},
        {
            "apiGroups": [""],
            "resources": ["secrets", "configmaps", "persistentvolumeclaims"],
            "verbs": ["get"],
        },
        _RECYCLES,
        _TRAIN_JOBS,
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]},
    ]
    return _granted("process-kubelet", rules)


def gang_rights() -> list[Manifest]:
    """Return the scheduler's permissions for PodGroups."""
    rules = [
        {
            "apiGroups": ["scheduling.x-k8s.io"],
            "resources": ["podgroups", "podgroups/status"],
            "verbs": ["get", "list", "watch", "update", "patch"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    ]
    return _granted("coscheduling-scheduler", rules, "system:kube-scheduler")


def _granted(name: str, rules: list[Manifest], user: str = "") -> list[Manifest]:
    """Return the ClusterRole ``name`` with ``rules``, and a binding to ``user``.

    The default user is called ``name``.
    """
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    return [role, role_binding(name, {"kind": "User", "apiGroup": _RBAC, "name": user or name})]


def crds_of(tool: Binary) -> list[Manifest]:
    """Return the CRDs that a tool ships."""
    return _of_kind(tool.manifests(), "CustomResourceDefinition")


def crds(jobset: Binary) -> list[Manifest]:
    """Return the CRDs of JobSet and Trainer."""
    return [*crds_of(jobset), *shipped.crds()]


def jobset_webhooks(jobset: Binary, url: str, authority: bytes) -> list[Manifest]:
    """Return JobSet's webhook configurations for a server at ``url``.

    The webhooks for pods are called only for the pods of JobSets.
    """
    ours = {"key": JOB_SET_NAME_KEY, "operator": "Exists"}
    found = []
    for manifest in _of_kind(
        jobset.manifests(), "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    ):
        name = f"jobset-{manifest['metadata']['name']}"
        pointed = point_at(manifest, url, authority, name=name)
        for hook in pointed["webhooks"]:
            if hook["name"] in _POD_HOOKS:
                hook["objectSelector"] = {"matchExpressions": [ours]}
        found.append(pointed)
    return found


def trainer_webhooks(url: str, authority: bytes) -> list[Manifest]:
    """Return our webhook configurations for a server at ``url``."""
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    hooks = _of_kind(shipped.manifests("webhook"), *kinds)
    return [point_at(manifest, url, authority) for manifest in hooks]


def certificates(folder: Path, authority: bytes) -> Manifest:
    """Return the Secret with the manager's certificate from ``folder``. Pods read ``authority`` from it."""
    files = {name: (folder / name).read_bytes() for name in ("tls.crt", "tls.key")}
    data = {name: base64.b64encode(text).decode() for name, text in {**files, "ca.crt": authority}.items()}
    name = defaulted().cert_management.webhook_secret_name
    metadata = {"name": name, "namespace": TRAINER_NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": metadata,
        "data": data,
    }


def runtimes() -> list[Manifest]:
    """Return all shipped runtimes, and the ConfigMap from which the Kubeflow SDK reads Trainer's version."""
    public = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubeflow-trainer-public", "namespace": TRAINER_NAMESPACE},
        "data": {"kubeflow_trainer_version": constants.API_RELEASE},
    }
    return [public, *shipped.manifests("runtimes"), *shipped.manifests("runtimes/data-cache")]


def volumes() -> list[Manifest]:
    """Return volumes for claims that name no storage class. Simulated pods do not mount them."""
    spec = {
        "capacity": {"storage": "1Ti"},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/nonexistent"},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{number}", "labels": recycling.LABELS},
            "spec": spec,
        }
        for number in range(VOLUMES)
    ]


def _of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]
