# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission by the webhooks of the managers under test: their webhook servers answer AdmissionReviews as bytes.

As behind a Service, a review goes to a random manager replica that is ready. It reaches the replica after a delay and
is answered in the replica's process. If that process is killed or paused, the API server waits until the webhook's
timeout.

Differences from a real API server:

- All webhooks are called one after the other, and each is called once (``reinvocationPolicy`` is ``Never``).
- A webhook is called only for the versions in its rules (``matchPolicy`` is ``Exact``).
- CONNECT requests and deletions of collections are not reviewed.
- Warnings and audit annotations in an answer are ignored.
- :meth:`Webhooks.configure` refuses webhooks with match conditions, and webhooks without a service.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from controller_runtime import webhook
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.client import JSON as JSON_PATCH
from controller_runtime.fake.tables import Document, Table
from controller_runtime.fake.writes import Review, patched
from controller_runtime.machinery import NamespacedName, errors, labels
from controller_runtime.serving import HTTPRequest, HTTPResponse

from .loop import Delays, Process
from .server import SimulatedServer

_TIMEOUT: Final = 10.0
_SLOWEST: Final = 0.02
"""Maximum seconds that a review takes to reach a replica, unless a fault delays it."""
_SUBRESOURCES: Final = ("status",)
_NAMESPACE: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace."""


class Listener(webhook.Server):
    """A webhook server without a socket."""

    def __init__(self) -> None:
        super().__init__(cert_dir="/nowhere")
        self._up = anyio.Event()

    async def ready(self) -> None:
        await self._up.wait()

    async def start(self) -> None:
        self._serving = True
        self._up.set()
        try:
            await anyio.sleep_forever()
        finally:
            self._serving = False

    @property
    def is_serving(self) -> bool:
        """True if a Service would send requests here."""
        return self._serving

    async def answer(self, path: str, body: bytes, seconds: float) -> HTTPResponse:
        """Return the answer to a POST."""
        handler = self._routes.get(path)
        if handler is None:
            return HTTPResponse.text("404 page not found", status=404)
        headers = {"Content-Type": "application/json"}
        query = {"timeout": [f"{seconds:g}s"]}
        return await handler(HTTPRequest(method="POST", path=path, query=query, headers=headers, body=body))


@dataclass(frozen=True)
class _Endpoint:
    process: Process
    context: Context
    listener: Listener
    has_synced: Callable[[], bool]

    @property
    def is_ready(self) -> bool:
        ended = self.process.dead or self.process.ended.is_set()
        return self.listener.is_serving and not ended and self.has_synced()


class Webhooks:
    """Sends reviews to the webhook servers of the managers, as the webhook configurations require."""

    def __init__(self, server: SimulatedServer, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self._endpoints: dict[str, _Endpoint] = {}
        self.delays = Delays(lambda: self._rng.random() * _SLOWEST)
        """Returns how many seconds the next review takes to reach a replica."""
        self.unreachable = 0
        """While this is positive, the API server cannot connect to any replica."""

    def listen(self, process: Process, context: Context, has_synced: Callable[[], bool]) -> Listener:
        """Return the webhook server of a process; the server is ready when the caches of the process have synced."""
        listener = Listener()
        self._endpoints[process.name] = _Endpoint(process, context, listener, has_synced)
        return listener

    def configure(self, configurations: Iterable[Mapping[str, Any]]) -> None:
        """Call the webhooks in these configurations. The server must already serve the kinds in their rules.

        Raises:
            ValueError: a webhook has match conditions, or no service.
        """
        for configuration in sorted(configurations, key=_order):
            for hook in configuration["webhooks"]:
                if hook.get("matchConditions"):
                    raise ValueError(f"webhook {hook['name']}: match conditions are not simulated")
                if "service" not in hook["clientConfig"]:
                    raise ValueError(f"webhook {hook['name']}: only webhooks of a service are simulated")
                mutates = configuration["kind"] == "MutatingWebhookConfiguration"
                for table in self._server.tables.values():
                    self._register(_Hook(self, hook, table, mutates=mutates), table)

    def namespace_labels(self, name: str) -> dict[str, str]:
        """Return the labels of a namespace."""
        row = self._server.table(Namespace).rows.get(NamespacedName("", name))
        labels: dict[str, str] = (row.document["metadata"].get("labels") or {}) if row is not None else {}
        return {_NAMESPACE: name, **labels}

    def _register(self, call: _Hook, table: Table) -> None:
        server, gvk = self._server, table.properties.gvk
        if call.is_for(""):
            server.admit.setdefault(gvk, []).append(call.review)
        for subresource in _SUBRESOURCES:
            if call.is_for(subresource):
                server.admit_subresource.setdefault((gvk, subresource), []).append(call.review)

    async def send(self, path: str, body: bytes, seconds: float) -> HTTPResponse:
        """Send a review to a replica and return the answer.

        Raises OSError if no replica can be reached, or TimeoutError if the answer takes too long.
        """
        rng, delay = self._rng, self.delays.longest()
        await anyio.sleep(min(delay, seconds))
        if delay >= seconds:
            raise TimeoutError("context deadline exceeded")
        if self.unreachable:
            raise OSError("connect: connection refused")
        ready = [endpoint for _, endpoint in sorted(self._endpoints.items()) if endpoint.is_ready]
        if not ready:
            raise OSError("no endpoints available for service")
        endpoint = rng.choice(ready)
        work = endpoint.listener.answer(path, body, seconds)
        task = asyncio.get_running_loop().create_task(work, context=endpoint.context.copy())
        done, _ = await asyncio.wait([task], timeout=seconds - delay)
        if not done:
            task.cancel()
            raise TimeoutError("context deadline exceeded")
        return task.result()


class _Hook:
    """One webhook of a configuration, for one kind."""

    def __init__(self, webhooks: Webhooks, hook: Mapping[str, Any], table: Table, *, mutates: bool) -> None:
        self._webhooks = webhooks
        self._hook = hook
        self._table = table
        self._mutates = mutates
        self._number = 0
        self._objects = _selector(hook, "objectSelector")
        self._namespaces = _selector(hook, "namespaceSelector")

    async def review(self, review: Review) -> None:
        """Call the webhook if one of its rules matches the write, and apply the patch in the answer to the object.

        Raises:
            StatusError: the webhook denied the write, or the call failed and the webhook's failure policy is not
                Ignore.
        """
        if not any(self._matches(rule, review) for rule in self._hook["rules"]) or not self._picks(review):
            return
        if review.dry_run and self._hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            text = f'admission webhook "{self._hook["name"]}" does not support dry run'
            raise errors.BadRequestError(text, code=400, reason="BadRequest")
        name, seconds = self._hook["name"], float(self._hook.get("timeoutSeconds") or _TIMEOUT)
        try:
            sent = await self._webhooks.send(
                self._hook["clientConfig"]["service"]["path"], self._body(review), seconds
            )
            response = msgspec.json.decode(sent.body)["response"]
            patch = self._patch_of(response)
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            if self._hook.get("failurePolicy") == "Ignore":
                return
            text = f'Internal error occurred: failed calling webhook "{name}": {error}'
            raise errors.StatusError(text, code=500, reason="InternalError") from None
        if not response["allowed"]:
            status = {"reason": "Forbidden", "code": 403} | (response.get("status") or {})
            status["message"] = f'admission webhook "{name}" denied the request: {status.get("message", "")}'
            raise errors.from_status(status, http_code=status["code"])
        if patch and review.new is not None:
            review.new = patched(self._table, review.new, patch, JSON_PATCH)

    def _patch_of(self, response: Mapping[str, Any]) -> list[Any]:
        """Return the patch in an answer.

        Raises ValueError if the patch is malformed, or comes from a validating webhook.
        """
        encoded = response.get("patch")
        if not encoded:
            return []
        if not self._mutates:
            raise ValueError("validating webhook must not return a patch")
        return msgspec.json.decode(base64.b64decode(encoded), type=list[Any])

    def _picks(self, review: Review) -> bool:
        """Return True if the webhook selects the namespace, and the old or the new state of the object."""
        documents = [document for document in (review.new, review.old) if document is not None]
        if not any(self._objects.matches(document["metadata"].get("labels")) for document in documents):
            return False
        namespace = documents[0]["metadata"].get("namespace")
        return not namespace or self._namespaces.matches(self._webhooks.namespace_labels(namespace))

    def is_for(self, subresource: str) -> bool:
        """Return True if a rule contains the resource or, if ``subresource`` is not empty, that subresource."""
        return any(_names(rule, self._table, subresource) for rule in self._hook["rules"])

    def _matches(self, rule: Mapping[str, Any], review: Review) -> bool:
        named = _names(rule, self._table, review.subresource)
        return named and bool({"*", review.operation} & set(rule["operations"]))

    def _body(self, review: Review) -> bytes:
        self._number += 1
        gvk, resource = self._table.properties.gvk, self._table.resource
        metadata = (review.new or review.old or {})["metadata"]
        request = {
            "uid": f"{self._hook['name']}-{self._number}",
            "kind": {"group": gvk.group, "version": gvk.version, "kind": gvk.kind},
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "subResource": review.subresource,
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": review.operation,
            "userInfo": {"username": review.user},
            "object": self._shown(review.new),
            "oldObject": self._shown(review.old),
            "dryRun": review.dry_run,
        }
        return msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        )

    def _shown(self, document: Document | None) -> Document | None:
        gvk = self._table.properties.gvk
        return None if document is None else {"apiVersion": gvk.api_version, "kind": gvk.kind, **document}


def _order(configuration: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sort key of a configuration: mutating ones come before validating ones, both sorted by name."""
    return str(configuration["kind"]), str((configuration.get("metadata") or {}).get("name") or "")


def _selector(hook: Mapping[str, Any], name: str) -> labels.Selector:
    return labels.from_label_selector(LabelSelector.from_dict(dict(hook.get(name) or {})))


def _names(rule: Mapping[str, Any], table: Table, subresource: str) -> bool:
    """Return True if a rule contains the table's resource or, if ``subresource`` is not empty, that subresource."""
    resource = table.resource
    plural = resource.plural
    names = {f"{plural}/{subresource}", f"{plural}/*", "*/*"} if subresource else {plural, "*", "*/*"}
    return bool(
        {"*", resource.group} & set(rule["apiGroups"])
        and {"*", resource.version} & set(rule["apiVersions"])
        and names & set(rule["resources"])
    )
