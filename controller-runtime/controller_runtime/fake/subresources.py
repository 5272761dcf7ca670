# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The subresources beside ``status`` as an API server answers them: ``scale``, ``eviction``, ``binding``, ``token`` and
``log``, and those that write a part of an object: ``resize`` and ``ephemeralcontainers`` of pods, and ``approval`` of
CertificateSigningRequests.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.machinery import GVK, JSON, errors, field, labels
from controller_runtime.machinery.meta import format_time

from .kinds import Path
from .tables import Document, Stored, Table

SCALE: Final = GVK("autoscaling", "v1", "Scale")
BUDGETS: Final = ("policy", "v1", "poddisruptionbudgets")
_BINDING: Final = GVK("", "v1", "Binding")
_SIGNING_REQUEST: Final = GVK("certificates.k8s.io", "v1", "CertificateSigningRequest")
_TOKEN_REQUEST: Final = GVK("authentication.k8s.io", "v1", "TokenRequest")
_SHORTEST_TOKEN: Final = 600
_TOKEN_LIFETIME: Final = 3600
_LOG_OPTIONS: Final = GVK("", "v1", "PodLogOptions")
_LEAST: Final = {"tailLines": 0, "sinceSeconds": 1, "limitBytes": 1}
_IN_SCALE: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_UNPROCESSED_DELAY: Final = 10
POD_PARTS: Final = frozenset({"resize", "ephemeralcontainers"})
APPROVAL: Final = "approval"
BINDING: Final = "binding"
PARTS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("", "Pod"): POD_PARTS,
    ("certificates.k8s.io", "CertificateSigningRequest"): frozenset({APPROVAL}),
}
"""The subresources by which a part of an object is read, updated and patched, by group and kind."""
_DECISIONS: Final = ("Approved", "Denied", "Failed")
_EPHEMERAL: Final = "ephemeralContainers"
_RESIZED_LISTS: Final = ("containers", "initContainers")
_RESIZED: Final = frozenset({"name", "resources", "resizePolicy"})


# scale


def scale_of(table: Table, document: Document) -> Document:
    """Return the Scale of an object.

    Raises:
        ServerError: the object of a custom kind does not contain the replicas.
    """
    paths = table.properties.scale
    assert paths is not None  # noqa: S101 -- the request was checked
    wanted = _at(document, paths.spec)
    if wanted is None and table.properties.custom:
        text = f'the spec replicas field ".{".".join(paths.spec)}" does not exist'
        details = {"causes": [{"message": text}]}
        message = f"Internal error occurred: {text}"
        raise errors.ServerError(message, code=500, reason="InternalError", details=details)
    selector = _at(document, paths.selector) if paths.selector else None
    if isinstance(selector, dict):
        structured = {"matchLabels", "matchExpressions"} & selector.keys()
        known = LabelSelector.from_dict(selector if structured else {"matchLabels": selector})
        selector = str(labels.from_label_selector(known))
    replicas = 1 if wanted is None else wanted  # the default of Kubernetes' own kinds
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {key: value for key, value in document["metadata"].items() if key in _IN_SCALE},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": _at(document, paths.status) or 0,
            **({"selector": selector} if selector else {}),
        },
    }


def configuration_of(table: Table, document: Document, scale: Document) -> Document:
    """Return the part of an object that a Scale contains, as an apply configuration of the object.

    Raises:
        BadRequestError: ``scale`` is not a Scale, or has the name of another object.
        InvalidError: the number of replicas is negative.
    """
    paths = table.properties.scale
    assert paths is not None  # noqa: S101 -- the request was checked
    if (scale.get("apiVersion"), scale.get("kind")) != (SCALE.api_version, SCALE.kind):
        text = (
            f"the object provided is a {scale.get('kind')} of {scale.get('apiVersion')}, not a {SCALE.kind}"
        )
        raise errors.BadRequestError(text, code=400, reason="BadRequest")
    metadata, name = scale.get("metadata") or {}, document["metadata"]["name"]
    check_name(metadata, name)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0 and table.properties.custom:
        path, text = f".{'.'.join(paths.spec)}", "should be a non-negative integer"
        raise table.invalid(name, path, f"Invalid value: {replicas}: {text}")
    if replicas < 0:
        text = "must be greater than or equal to 0"
        wrong = field.invalid(field.Path("spec").child("replicas"), replicas, text)
        raise errors.new_invalid(SCALE, name, field.AggregateError([wrong]))
    part: JSON = replicas
    for step in reversed(paths.spec):
        part = {step: part}
    identity = {
        key: document["metadata"][key] for key in ("name", "namespace") if key in document["metadata"]
    }
    given = {key: metadata[key] for key in ("resourceVersion", "uid") if metadata.get(key)}
    kept = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    return {**kept, "metadata": identity | given, **part}


def check_apply(table: Table) -> None:
    """Raise ServerError for a custom kind: API servers cannot apply a Scale to its objects."""
    if table.properties.custom:
        raise errors.ServerError(
            "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, "
            "Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1"
        )


def rescaled(table: Table, document: Document, scale: Document) -> Document:
    """Return a copy of an object with the replicas of a Scale. Raises the same as :func:`configuration_of`."""
    config = configuration_of(table, document, scale)
    after: Document = _merged(document, {k: v for k, v in config.items() if k not in ("apiVersion", "kind")})
    return after


def _merged(value: JSON, change: JSON) -> JSON:
    if not isinstance(value, dict) or not isinstance(change, dict):
        return change
    return {**value, **{key: _merged(value.get(key), part) for key, part in change.items()}}


def _at(document: JSON, path: Path) -> JSON:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document


def check_name(metadata: Mapping[str, Any], name: str) -> None:
    """Raise BadRequestError if the metadata of a subresource names another object."""
    if metadata.get("name") != name:
        text = f"the name of the object ({metadata.get('name') or ''}) does not match the name on the URL ({name})"
        raise errors.BadRequestError(text, code=400, reason="BadRequest")


# eviction


def budget_after(pod: Document, budgets: Table | None, now: datetime) -> tuple[Stored, Document] | None:
    """Return the PodDisruptionBudget that an eviction of ``pod`` uses, and its state after the eviction, or None.

    A pod without a phase counts as running, and a pod without the condition Ready counts as ready.

    Raises:
        TooManyRequestsError: the budget does not allow the eviction now.
        ServerError: several budgets select the pod.
    """
    metadata, status = pod["metadata"], pod.get("status") or {}
    ended = status.get("phase") in ("Pending", "Succeeded", "Failed") or metadata.get("deletionTimestamp")
    if budgets is None or ended:
        return None
    matching = [row for row in budgets.rows.values() if _selects(row.document, metadata)]
    if not matching:
        return None
    if len(matching) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise errors.ServerError(f"Internal error occurred: {text}", code=500, reason="InternalError")
    row = matching[0]
    name, state = row.document["metadata"]["name"], row.document.get("status") or {}
    healthy, desired = state.get("currentHealthy") or 0, state.get("desiredHealthy") or 0
    ready: Document = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    if ready.get("status", "True") != "True":
        policy = (row.document.get("spec") or {}).get("unhealthyPodEvictionPolicy")
        if policy == "AlwaysAllow" or healthy >= desired > 0:
            return None
    if (state.get("observedGeneration") or 0) < (row.document["metadata"].get("generation") or 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _refusal(text, retry_after=_UNPROCESSED_DELAY)
    allowed = state.get("disruptionsAllowed") or 0
    if allowed <= 0:
        needs = f"needs {desired} healthy pods and has {healthy} currently"
        raise _refusal(f"The disruption budget {name} {needs}")
    disrupted = {**(state.get("disruptedPods") or {}), metadata["name"]: format_time(now)}
    after = {**state, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    return row, {**row.document, "status": after}


def _selects(budget: Document, metadata: Document) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or budget["metadata"].get("namespace") != metadata.get("namespace"):
        return False
    return labels.from_label_selector(LabelSelector.from_dict(selector)).matches(metadata.get("labels"))


def _refusal(text: str, *, retry_after: int = 0) -> errors.TooManyRequestsError:
    details: dict[str, JSON] = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return errors.TooManyRequestsError(
        _REFUSED, code=429, reason="TooManyRequests", details=details, retry_after=retry_after or None
    )


# binding


def bound(pod: Document, binding: Document, now: datetime) -> Document:
    """Return a pod that is bound to the node in ``binding``.

    Raises:
        ConflictError: the pod has a node, or is being deleted.
        InvalidError: the binding names no node.
    """
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    node = (binding.get("target") or {}).get("name")
    if not node:
        wrong = field.required(field.Path("target").child("name"), "")
        raise errors.new_invalid(_BINDING, name, field.AggregateError([wrong]))
    problem = f"pod {name} is being deleted, cannot be assigned to a host"
    if (taken := (pod.get("spec") or {}).get("nodeName")) and not metadata.get("deletionTimestamp"):
        problem = f'pod {name} is already assigned to node "{taken}"'
    if taken or metadata.get("deletionTimestamp"):
        text = f'Operation cannot be fulfilled on pods/binding "{name}": {problem}'
        raise errors.ConflictError(text, code=409, reason="Conflict")
    given = binding.get("metadata") or {}
    merged = {
        key: {**(metadata.get(key) or {}), **given[key]}
        for key in ("annotations", "labels")
        if given.get(key)
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(now)}
    status = pod.get("status") or {}
    others = [
        condition for condition in status.get("conditions") or () if condition.get("type") != "PodScheduled"
    ]
    return {
        **pod,
        "metadata": {**metadata, **merged},
        "spec": {**(pod.get("spec") or {}), "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


# approval


def decided(old: Document, new: Document, now: datetime) -> Document:
    """Return ``new`` as ``approval`` writes it: with the old spec and, in the status, only new conditions.

    Raises:
        InvalidError: a decision was removed.
    """
    before = (old.get("status") or {}).get("conditions") or []
    known = {condition.get("type"): condition for condition in before}
    conditions = [dict(condition) for condition in (new.get("status") or {}).get("conditions") or ()]
    path = field.Path("status").child("conditions")
    lost = [
        field.forbidden(path, f'updates may not remove a condition of type "{kind}"')
        for kind in _DECISIONS
        if kind in known and all(condition.get("type") != kind for condition in conditions)
    ]
    if lost:
        raise errors.new_invalid(_SIGNING_REQUEST, old["metadata"]["name"], field.AggregateError(lost))
    for condition in conditions:
        same: Document = known.get(condition.get("type"), {})
        kept = same.get("lastTransitionTime") if same.get("status") == condition.get("status") else None
        condition.setdefault("lastUpdateTime", format_time(now))
        condition.setdefault("lastTransitionTime", kept or format_time(now))
    status = {**(old.get("status") or {}), **({"conditions": conditions} if conditions else {})}
    return {**new, "spec": old.get("spec") or {}, **({"status": status} if status else {})}


# resize and ephemeralcontainers


def configured_by(subresource: str, config: Document, *, own_status: bool) -> Document:
    """Return the fields of an apply configuration that ``subresource`` sets.

    ``own_status`` is True if the status is a subresource of its own.
    """
    if subresource == "status":
        return {"status": config["status"]} if "status" in config else {}
    rest = {name: value for name, value in config.items() if name != "status" or not own_status}
    if subresource == APPROVAL:
        conditions = (config.get("status") or {}).get("conditions")
        rest.pop("spec", None)
        return {**rest, **({"status": {"conditions": conditions}} if conditions else {})}
    return {**rest, "spec": written_by(subresource, config)} if subresource in POD_PARTS else rest


def written_by(subresource: str, document: Document) -> Document:
    """Return the fields in the spec of a pod that ``resize`` or ``ephemeralcontainers`` writes."""
    spec: Document = document.get("spec") or {}
    if subresource == "ephemeralcontainers":
        return {_EPHEMERAL: spec[_EPHEMERAL]} if _EPHEMERAL in spec else {}
    part: Document = {"resources": spec["resources"]} if "resources" in spec else {}
    for name in _RESIZED_LISTS:
        if spec.get(name):
            part[name] = [{k: v for k, v in container.items() if k in _RESIZED} for container in spec[name]]
    return part


def pod_after(subresource: str, old: Document, new: Document) -> Document:
    """Return ``old`` with the fields of ``new`` that ``resize`` or ``ephemeralcontainers`` writes.

    As on a real server, all other changes are dropped.
    """
    part, spec = written_by(subresource, new), dict(old.get("spec") or {})
    if subresource == "ephemeralcontainers":
        spec.pop(_EPHEMERAL, None)
        return {**old, "metadata": dict(old["metadata"]), "spec": spec | part}
    spec.pop("resources", None)
    for name in _RESIZED_LISTS:
        sizes = {container.get("name"): container for container in part.pop(name, ())}
        if name in spec:
            spec[name] = [
                {k: v for k, v in container.items() if k not in _RESIZED} | sizes[container.get("name")]
                if container.get("name") in sizes
                else container
                for container in spec[name]
            ]
    return {**old, "metadata": dict(old["metadata"]), "spec": spec | part}


# token and log


def issued(account: Document, body: Document, now: datetime) -> Document:
    """Return a TokenRequest with a token of a ServiceAccount; no server accepts the token.

    Raises:
        InvalidError: the lifetime is shorter than ten minutes.
    """
    spec = dict(body.get("spec") or {})
    lifetime = spec.setdefault("expirationSeconds", _TOKEN_LIFETIME)
    if lifetime < _SHORTEST_TOKEN:
        path = field.Path("spec").child("expirationSeconds")
        wrong = field.invalid(path, lifetime, "may not specify a duration less than 10 minutes")
        raise errors.new_invalid(_TOKEN_REQUEST, "", field.AggregateError([wrong]))
    metadata = {key: account["metadata"][key] for key in ("name", "namespace")}
    status = {
        "token": "fake-token",
        "expirationTimestamp": format_time(now + timedelta(seconds=lifetime)),
    }
    return {
        "apiVersion": _TOKEN_REQUEST.api_version,
        "kind": _TOKEN_REQUEST.kind,
        "metadata": metadata | {"creationTimestamp": format_time(now)},
        "spec": spec,
        "status": status,
    }


def log_of(pod: Document, query: Mapping[str, str], logs: Mapping[tuple[str, str, str], str]) -> str:
    """Return the log of a container: the whole text, unless ``tailLines`` or ``limitBytes`` cut it.

    Raises:
        BadRequestError: the pod has no such container, or several containers and the request names none.
        InvalidError: a number is too small.
    """
    small = [
        field.invalid(
            field.Path(name), int(query[name]), f"must be greater than{' or equal to' * (least == 0)} 0"
        )
        for name, least in _LEAST.items()
        if name in query and int(query[name]) < least
    ]
    if small:
        raise errors.new_invalid(_LOG_OPTIONS, pod["metadata"]["name"], field.AggregateError(small))
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    names = [
        container["name"] for part in ("containers", "initContainers") for container in spec.get(part) or ()
    ]
    container = query.get("container", "")
    if not container and len(spec.get("containers") or ()) == 1:
        container = names[0]
    if container not in names:
        text = f"container {container} is not valid for pod {metadata['name']}"
        if not container:
            listed = " ".join(names)
            text = f"a container name must be specified for pod {metadata['name']}, choose one of: [{listed}]"
        raise errors.BadRequestError(text, code=400, reason="BadRequest")
    text = logs.get((metadata.get("namespace") or "", metadata["name"], container), "")
    if "tailLines" in query:
        lines = text.splitlines(keepends=True)
        text = "".join(lines[max(0, len(lines) - int(query["tailLines"])) :])
    if "limitBytes" in query:
        text = text.encode()[: int(query["limitBytes"])].decode(errors="ignore")
    return text
