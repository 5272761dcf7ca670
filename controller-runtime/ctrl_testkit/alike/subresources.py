# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scales, evictions under a PodDisruptionBudget, and tokens."""

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller_runtime.apis.apps.v1 import Deployment
from controller_runtime.apis.authentication.v1 import TokenRequest, TokenRequestSpec
from controller_runtime.apis.autoscaling.v1 import Scale, ScaleSpec
from controller_runtime.apis.certificates.v1 import CertificateSigningRequest
from controller_runtime.apis.core.v1 import Pod, ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.policy.v1 import Eviction
from controller_runtime.client import JSON, MERGE, STRATEGIC, Client, merge_from, raw_patch
from controller_runtime.machinery import GVK, Object, unstructured

from .world import Gadget, Observation, Scaled, config_map, observe, pod, widget

BUDGET = unstructured(GVK("policy", "v1", "PodDisruptionBudget"))
DEPLOYMENTS = {
    "selector": {"matchLabels": {"app": "d"}},
    "template": {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    },
}


def deployment(ns: str) -> Deployment:
    return Deployment.from_dict(
        {"metadata": {"name": "d", "namespace": ns}, "spec": DEPLOYMENTS | {"replicas": 2}}
    )


def scaled(ns: str, **spec: Any) -> Any:
    return widget(ns, Scaled, "s", spec=spec)


def of(replicas: int, **metadata: Any) -> Scale:
    return Scale(metadata=ObjectMeta(**metadata), spec=ScaleSpec(replicas=replicas))


async def _scales(c: Client, obj: Object) -> list[Observation]:
    scales = c.subresource("scale")
    first = await scales.get(obj)
    second = first.deep_copy()
    second.spec.replicas = 3
    newer = await scales.update(obj, second)
    wrong_uid = "11111111-1111-4111-8111-111111111111"
    return [
        await observe(scales.update(obj, second)),
        await observe(scales.update(obj, of(0))),
        await observe(scales.update(obj, of(-1))),
        (await observe(scales.update(obj, of(1, uid=wrong_uid))))[:4],
        await observe(scales.update(obj, of(1, name="other"))),
        await observe(scales.patch(obj, raw_patch(MERGE, b'{"spec":{"replicas":5}}'))),
        await observe(scales.patch(obj, merge_from(newer), first)),
        await observe(scales.patch(obj, merge_from(newer, optimistic_lock=True), first)),
        await observe(
            scales.patch(obj, raw_patch(JSON, b'[{"op":"add","path":"/spec/replicas","value":4}]'))
        ),
        await observe(scales.update(obj, of(9), dry_run=True)),
        (await observe(scales.apply(obj, of(6), field_owner="me")))[:4],
        await observe(scales.apply(obj, of(7), field_owner="you", force=True)),
        (await observe(scales.apply(obj, of(8), field_owner="me")))[:4],
        await observe(scales.get(obj)),
        (await c.get(type(obj), obj.key)).metadata.generation,
    ]


async def scales_of_deployments(c: Client, ns: str) -> list[Observation]:
    made = await c.create(deployment(ns))
    made.status.replicas = 1
    before = await observe(c.subresource("scale").get(made))
    await c.status.update(made)
    strategic = raw_patch(STRATEGIC, b'{"spec":{"replicas":7}}')
    return [
        before,
        await observe(c.subresource("scale").get(made)),
        *await _scales(c, made),
        await observe(c.subresource("scale").patch(made, strategic)),
    ]


async def scales_of_custom_kinds(c: Client, ns: str) -> list[Observation]:
    made = await c.create(scaled(ns, size=2))
    made.status = {"size": 1, "chosen": "app=x"}
    await c.status.update(made)
    return [await observe(c.subresource("scale").get(made)), *await _scales(c, made)]


async def scales_that_do_not_exist(c: Client, ns: str) -> list[Observation]:
    made = await c.create(scaled(ns))
    gadget = await c.create(widget(ns, Gadget))
    scales = c.subresource("scale")
    return [
        await observe(scales.get(made)),
        await observe(scales.get(gadget)),
        await observe(scales.update(gadget, of(1))),
        await observe(scales.get(await c.create(config_map(ns)))),
        await observe(scales.get(deployment(ns))),
        await observe(scales.update(deployment(ns), of(1))),
        await observe(scales.patch(deployment(ns), raw_patch(MERGE, b"{}"))),
    ]


def parts(obj: Pod) -> list[Observation]:
    """Return what the subresources of a pod write or drop; the server sets defaults in the rest of the spec."""
    (one,) = obj.spec.containers or []
    resources = one.resources.to_dict() if one.resources is not None else {}
    debug = [each.name for each in obj.spec.ephemeral_containers or ()]
    return [obj.metadata.labels, obj.metadata.generation, one.image, resources, debug]


async def resizes_of_pods(c: Client, ns: str) -> list[Observation]:
    amounts = {"cpu": "1", "memory": "1Gi"}
    made = await c.create(
        pod(ns, containers=[{"name": "c", "image": "i", "resources": {"requests": amounts}}])
    )
    sized = [{"name": "c", "image": "other", "resources": {"requests": amounts | {"cpu": "2"}}}]
    changed = pod(ns, containers=sized)
    changed.metadata = made.metadata.model_copy(update={"labels": {"is": "dropped"}})
    resize = c.subresource("resize")
    bigger = b'{"spec":{"containers":[{"name":"c","image":"new","resources":{"requests":{"cpu":"3"}}}]}}'
    updated = await resize.update(changed)
    patched = await resize.patch(made, raw_patch(STRATEGIC, bigger))
    return [
        *map(parts, (updated, patched, await resize.get(made, Pod), await c.get(Pod, made.key))),
        (await observe(resize.update(changed)))[:4],
    ]


async def ephemeral_containers_of_pods(c: Client, ns: str) -> list[Observation]:
    made = await c.create(pod(ns))
    added = (
        b'{"metadata":{"labels":{"is":"dropped"}},"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}'
    )
    containers = c.subresource("ephemeralcontainers")
    patched = await containers.patch(made, raw_patch(STRATEGIC, added))
    return [*map(parts, (patched, await containers.get(made, Pod), await c.get(Pod, made.key)))]


async def evictions_under_a_budget(c: Client, ns: str) -> list[Observation]:
    budget = await c.create(
        BUDGET.from_dict(
            {
                "metadata": {"name": "b", "namespace": ns},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
            }
        )
    )
    evictions = c.subresource("eviction")

    async def running(name: str, ready: str = "True") -> Pod:
        obj = pod(ns)
        obj.metadata.name, obj.metadata.labels = name, {"a": "b"}
        obj = await c.create(obj)
        patch = (
            b'{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"'
            + ready.encode()
            + b'"}]}}'
        )
        return await c.status.patch(obj, raw_patch(MERGE, patch))

    async def allow(**status: Any) -> None:
        found: Any = await c.get(BUDGET, budget.key)
        found.status = {
            "observedGeneration": 1,
            "currentHealthy": 0,
            "desiredHealthy": 1,
            "disruptionsAllowed": 0,
            "expectedPods": 1,
        } | status
        await c.status.update(found)

    async def left() -> Any:
        found: Any = await c.get(BUDGET, budget.key)
        status = found.to_dict()["status"]
        return [status.get("disruptionsAllowed"), sorted(status.get("disruptedPods") or ())]

    one, sick = await running("one"), await running("sick", "False")
    other = Eviction(metadata=ObjectMeta(name="other", namespace=ns))
    observations = [await observe(evictions.create(one, other))]
    waiting = pod(ns)
    waiting.metadata.labels = {"a": "b"}
    pending = await c.status.patch(
        await c.create(waiting), raw_patch(MERGE, b'{"status":{"phase":"Pending"}}')
    )
    observations.append((await observe(evictions.create(pending, Eviction())))[0])
    await allow()
    observations += [
        await observe(evictions.create(one, Eviction())),
        (await observe(evictions.create(sick, Eviction())))[:3],
    ]
    await allow(currentHealthy=1)
    observations += [
        (await observe(evictions.create(one, Eviction())))[:3],
        (await observe(evictions.create(sick, Eviction())))[0],
    ]
    await allow(disruptionsAllowed=1)
    observations += [
        (await observe(evictions.create(one, Eviction(), dry_run=True)))[0],
        await left(),
        (await observe(evictions.create(one, Eviction())))[0],
        await left(),
        (await observe(c.get(Pod, one.key)))[:3],
    ]
    return observations


async def logs_of_impossible_parts(c: Client, ns: str) -> list[Observation]:
    found = await c.create(pod(ns))
    options: list[Any] = [{"tail_lines": -1}, {"since_seconds": 0}, {"limit_bytes": 0, "tail_lines": -2}]
    return [await observe(c.subresource("log").get(found, **each)) for each in options]


async def tokens_of_service_accounts(c: Client, ns: str) -> list[Observation]:
    account = await c.create(ServiceAccount.from_dict({"metadata": {"name": "a", "namespace": ns}}))
    tokens = c.subresource("token")
    issued = await tokens.create(account, TokenRequest(spec=TokenRequestSpec(expiration_seconds=900)))
    short = TokenRequest(spec=TokenRequestSpec(expiration_seconds=60))
    missing = ServiceAccount.from_dict({"metadata": {"name": "b", "namespace": ns}})
    return [
        (bool(issued.status.token), bool(issued.status.expiration_timestamp), issued.spec.expiration_seconds),
        (issued.name, issued.namespace),
        await observe(tokens.create(account, short)),
        await observe(tokens.create(missing, TokenRequest())),
    ]


def _request_of(name: str) -> CertificateSigningRequest:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return CertificateSigningRequest.from_dict(
        {
            "metadata": {"name": name, "labels": {"a": "1"}},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": "example.com/signer",
                "usages": ["client auth"],
            },
        }
    )


def _condition(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "Checked", "message": "m", **more}


def _decided(obj: CertificateSigningRequest) -> list[Observation]:
    conditions = [
        [
            each.type,
            each.status,
            each.reason,
            bool(each.last_update_time),
            each.last_transition_time if each.reason == "Timed" else bool(each.last_transition_time),
        ]
        for each in obj.status.conditions or ()
    ]
    return [obj.metadata.labels, obj.spec.usages, bool(obj.status.certificate), conditions]


async def approvals_of_certificate_signing_requests(c: Client, ns: str) -> list[Observation]:
    made = await c.create(_request_of(f"{ns}-a"))
    approval = c.subresource("approval")

    def changed(obj: CertificateSigningRequest, **status: Any) -> CertificateSigningRequest:
        data = obj.to_dict() | {"status": status}
        data["metadata"] = data["metadata"] | {"labels": {"a": "2"}}
        data["spec"] = data["spec"] | {"usages": ["server auth"]}
        return CertificateSigningRequest.from_dict(data)

    first = await approval.update(changed(made, conditions=[_condition("Approved")]))
    stale = await observe(approval.update(changed(made, conditions=[_condition("Denied")])))
    removed = await observe(approval.patch(first, raw_patch(MERGE, b'{"status":{"conditions":[]}}')))
    patched = await approval.patch(first, raw_patch(MERGE, b'{"metadata":{"labels":{"b":"3"}}}'))
    read = await approval.get(first, CertificateSigningRequest)
    other = await c.create(_request_of(f"{ns}-b"))
    timed = _condition("Failed", reason="Timed", lastTransitionTime="2020-01-01T00:00:00Z")
    signed = changed(other, conditions=[timed], certificate=other.spec.request)
    applied = CertificateSigningRequest.from_dict(
        {"metadata": {"name": f"{ns}-b"}, "status": {"conditions": [_condition("Denied")]}}
    )
    return [
        stale[:4],
        removed,
        *map(_decided, (first, patched, read, await approval.update(signed))),
        _decided(await approval.apply(applied, field_owner="me")),
        _decided(await c.get(CertificateSigningRequest, other.key)),
        (await observe(approval.get(_request_of("absent"), CertificateSigningRequest)))[:4],
    ]


async def bindings_of_pods(c: Client, ns: str) -> list[Observation]:
    made = await c.create(pod(ns))
    bindings = c.subresource("binding")

    def to(node: str, **metadata: Any) -> Any:
        data = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        return unstructured(GVK("", "v1", "Binding")).from_dict(data)

    answer = await observe(bindings.create(made, to("n1", annotations={"a": "b"})))
    found = await c.get(Pod, made.key)
    conditions = [[each.type, each.status] for each in found.status.conditions or ()]
    return [
        answer[0],
        [found.spec.node_name, (found.metadata.annotations or {}).get("a"), conditions],
        (await observe(bindings.create(made, to("n2"))))[:5],
        (await observe(bindings.create(Pod(metadata=ObjectMeta(name="absent", namespace=ns)), to("n2"))))[:4],
    ]
