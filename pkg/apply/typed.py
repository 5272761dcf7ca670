# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON that a typed Go client sends for a template of jobs and pods.

Upstream reads templates into Go structs and writes them again. Go does not distinguish some values from unset ones:
empty lists and maps, and zero values of plain fields with ``omitempty``. These values are dropped. The structs that Go
embeds by value are added. Because both managers send the same JSON, the ownership of fields does not change when a
cluster changes over from the Go manager. Fields that are not named here are not changed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from controller_runtime.machinery import JSON, quantity

_ANYWHERE: Final[frozenset[str]] = frozenset()

_PLAIN_FIELDS: Final[dict[str, frozenset[str]]] = dict.fromkeys(
    (
        *("apiVersion", "audience", "certificateChainPath", "credentialBundlePath", "directory", "dnsPolicy"),
        *("effect", "failureThreshold", "group", "groupName", "host", "hostIP", "hostIPC", "hostNetwork"),
        *("hostPID", "hostPort", "hostname", "imagePullPolicy", "initialDelaySeconds", "jobIndex", "keyPath"),
        *("keyType", "level", "maxRestarts", "medium", "nodeName", "periodSeconds", "podIndex", "prefix"),
        *(
            "priorityClassName",
            "protocol",
            "pullPolicy",
            "reference",
            "replicas",
            "request",
            "restartStrategy",
        ),
        *("role", "schedulerName", "scheme", "serviceAccount", "serviceAccountName", "stdin", "stdinOnce"),
        *("subPath", "subPathExpr", "subdomain", "successThreshold", "targetContainerName"),
        "terminationMessagePath",
        *("terminationMessagePolicy", "timeoutSeconds", "tty", "user", "workingDir"),
        # Rarely used volumes.
        *("chapAuthDiscovery", "chapAuthSession", "datasetName", "datasetUUID", "iscsiInterface", "keyring"),
        *("partition", "pool", "protectionDomain", "revision", "secretFile", "sslEnabled", "storageMode"),
        *("storagePolicyID", "storagePolicyName", "storagePool", "tenant", "volumeNamespace"),
        # Of metadata.
        *("generateName", "generation", "resourceVersion", "uid"),
    ),
    _ANYWHERE,
) | {
    # These fields are plain only inside the named fields. Elsewhere, they are pointers or required.
    "action": frozenset({"restartPolicyRules"}),
    "containerName": frozenset({"resourceFieldRef"}),
    "fsType": frozenset(
        {
            *("awsElasticBlockStore", "cinder", "fc", "flexVolume", "gcePersistentDisk", "iscsi"),
            *("photonPersistentDisk", "portworxVolume", "rbd", "scaleIO", "storageos", "vsphereVolume"),
        }
    ),
    "image": frozenset({"containers", "initContainers", "ephemeralContainers"}),
    "key": frozenset({"tolerations"}),
    "name": frozenset(
        {
            *("configMap", "configMapKeyRef", "configMapRef", "secret", "secretKeyRef", "secretRef"),
            *("imagePullSecrets", "metadata", "nodePublishSecretRef", "options", "ports"),
        }
    ),
    "namespace": frozenset({"metadata"}),
    "operator": frozenset({"tolerations", "exitCodes"}),
    "path": frozenset({"httpGet", "cephfs"}),
    "readOnly": frozenset(
        {
            *("volumeMounts", "persistentVolumeClaim", "nfs", "awsElasticBlockStore", "azureFile", "cephfs"),
            *("cinder", "fc", "flexVolume", "gcePersistentDisk", "glusterfs", "iscsi", "portworxVolume"),
            *("quobyte", "rbd", "scaleIO", "storageos"),
        }
    ),
    "restartPolicy": frozenset({"spec"}),
    "secretName": frozenset({"secret"}),
    "signerName": frozenset({"podCertificate"}),
    "type": frozenset({"seLinuxOptions"}),
    "value": frozenset({"env", "tolerations"}),
    "volumeName": frozenset({"scaleIO", "spec", "storageos"}),
}

_STRING_MAPS: Final = frozenset(
    {
        *("labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead"),
        *("options", "userAnnotations", "volumeAttributes"),
    }
)
_CONTAINERS: Final = frozenset({"containers", "initContainers", "ephemeralContainers"})
_CLAIMS: Final = ("volumeClaimTemplate", "templates")
"""Fields that contain a PersistentVolumeClaim, in an ephemeral volume and in a JobSet's volumeClaimPolicies."""


def as_typed(value: dict[str, JSON], *, inside: str = "") -> dict[str, JSON]:
    """Change ``value`` in place to the JSON that a typed client sends, and return it.

    Args:
        value: JSON of a JobSet's spec, or of a part of a spec.
        inside: the field that holds ``value``, if ``value`` is a part of a spec.
    """
    if inside == "replicatedJobs":
        value.setdefault("template", {}).setdefault("spec", {}).setdefault("template", {})
    for field in list(value):
        held = value[field]
        if field in _STRING_MAPS or isinstance(held, list):
            if not held:
                del value[field]
            elif isinstance(held, list):
                for item in held:
                    if isinstance(item, dict):
                        as_typed(item, inside=field)
        elif isinstance(held, dict):
            as_typed(held, inside=field)
        elif not held and (held is None or _is_plain(field, inside)):
            del value[field]
    _add_structs(value, inside)
    return value


def _add_structs(value: dict[str, JSON], inside: str) -> None:
    """Add the structs that Go embeds by value."""
    if inside in _CONTAINERS:
        value.setdefault("resources", {})
    elif inside in ("template", *_CLAIMS):
        value.setdefault("metadata", {})
        spec = value.setdefault("spec", {})
        if inside in _CLAIMS:
            _write_amounts(spec.setdefault("resources", {}))
        if inside == "templates":
            value.setdefault("status", {})
    elif inside == "resourceFieldRef":
        value.setdefault("divisor", "0")


def _write_amounts(resources: dict[str, JSON]) -> None:
    """Write the amounts of a claim as Go does. The amounts of containers already have Go's form."""
    for field in ("limits", "requests"):
        for name, amount in (resources.get(field) or {}).items():
            with suppress(ValueError):  # the CRD admits only quantities
                resources[field][name] = quantity.of_json(amount)


def _is_plain(field: str, inside: str) -> bool:
    within = _PLAIN_FIELDS.get(field)
    return within is not None and (within is _ANYWHERE or inside in within)
