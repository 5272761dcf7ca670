# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of the second generation's servers: the Configuration, a status update, the check of its token."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
from controller_runtime import rest, serving
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, errors
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from pkg import config, statusserver
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver.auth import extract_raw_token
from pkg.statusserver.server import MAX_BODY, StatusWriter
from pkg.util import tlsconfig

Answer = dict[str, Any]

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_KEY_NAME: Final = "key-1"


async def load_configuration(case: Answer) -> Answer:
    """Load the case's file, or the defaults if it has none."""
    try:
        cfg = _loaded(case.get("config"))
    except config.ConfigurationError as error:
        return {"error": str(error)}
    options, tls = config.manager_options(cfg), tlsconfig.resolve(cfg.tls)
    return {
        "config": cfg.to_dict(),
        "options": {
            "healthProbeBindAddress": options.health_probe_bind_address,
            "leaderElection": options.leader_election,
            "metricsBindAddress": options.metrics_bind_address,
            "metricsSecure": options.metrics_secure,
            "tls": {
                "cipherSuites": list(tls.suites) or None,
                "minVersion": int(tls.minimum_version or 0),
                "nextProtos": list(tls.server_options().next_protocols),
            },
        },
    }


def _loaded(text: str | None) -> Configuration:
    if text is None:
        return config.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(text)
        try:
            return config.load(str(path))
        except config.ConfigurationError as error:
            raise config.ConfigurationError(str(error).replace(f"{path}: ", "")) from error


class _Statuses(FakeClient):
    """The in-memory client; its applies fail as the case says."""

    def __init__(self, case: Answer) -> None:
        super().__init__(*([TrainJob.from_dict(case["trainJob"])] if case.get("trainJob") else []))
        self.failure = next(
            (each for each in case.get("clientErrors") or () if each["verb"] == "apply"), None
        )

    @property
    def statuses(self) -> StatusWriter:
        return _Failing(self.failure) if self.failure is not None else self.status


class _Failing:
    def __init__(self, failure: Answer) -> None:
        self._failure = failure

    async def patch(self, *_: object, **__: object) -> Object:
        if "code" not in self._failure:
            raise rest.TransportError(self._failure["message"], host="https://fake")
        raise errors.from_status(self._failure, http_code=self._failure["code"])


class _Verdict:
    """An authorizer that answers as the case says, and records the request."""

    def __init__(self, verdict: str) -> None:
        self._verdict = verdict
        self.asked: Answer | None = None

    async def authorize(self, header: str, namespace: str, train_job: str) -> None:
        try:
            token = extract_raw_token(header)
        except statusserver.DeniedError:
            token = ""
        audience = statusserver.token_audience(namespace, train_job)
        self.asked = {"audience": audience, "name": train_job, "namespace": namespace, "token": token}
        if self._verdict == "deny":
            raise statusserver.DeniedError
        if self._verdict == "error":
            raise rest.TransportError("the keys cannot be read", host="https://fake")


async def update_status(case: Answer) -> Answer:
    """Send the case's request over a connection to the server of the status handler."""
    cluster, verdict = _Statuses(case), _Verdict(case["request"]["auth"])
    handler = statusserver.StatusHandler(cluster.statuses, verdict.authorize)
    server = serving.Server(serving.Address("127.0.0.1", 0), {"/": handler}, max_body=MAX_BODY)
    server.listen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        answer = await _exchange(server.port, case["request"])
        tasks.cancel_scope.cancel()
    if verdict.asked is not None:
        answer["authorize"] = verdict.asked
    if applied := [call.body for call in cluster.calls if call.verb == "apply"]:
        answer["applied"] = applied
    if case.get("trainJob"):
        stored = await cluster.get(TrainJob, TrainJob.from_dict(case["trainJob"]).key)
        answer["status"] = json.loads(stored.to_json()).get("status") or {}
        _null_times(answer, applied)
    return answer


def _null_times(answer: Answer, applied: list[Any]) -> None:
    """Add a time that was applied as null to the status in the answer, because typed objects omit nulls."""
    for each in applied:
        if each["status"]["trainerStatus"].get("lastUpdatedTime", "") is None:
            answer["status"].setdefault("trainerStatus", {}).setdefault("lastUpdatedTime", None)


async def _exchange(port: int, request: Answer) -> Answer:
    body = (request["body"] * request.get("repeat", 1)).encode()
    head = [f"{request['method']} {request['path']} HTTP/1.1", "Host: status", "Connection: close"]
    head += [f"{name}: {value}" for name, value in request["header"].items()]
    chunked = request.get("chunked", False)
    head.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*head, "", ""]).encode())
    for start in range(0, len(body), 8192):
        piece = body[start : start + 8192]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        writer.write(b"0\r\n\r\n")
    raw = await reader.read()
    writer.close()
    lines, _, content = raw.partition(b"\r\n\r\n")
    first, *fields = lines.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
    code = int(first.split()[1])
    return {"code": code, "contentType": headers["content-type"], "body": json.loads(content)}


@cache
def _private_key(name: str) -> rsa.RSAPrivateKey:
    del name
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


async def authorize(case: Answer) -> Answer:
    """Check the case's token, which belongs to a pod of the TrainJob if it names a pod."""
    token = case["token"]
    issuer = statusserver.Issuer(rest.FakeTransport(_publish))
    cluster = FakeClient(*_pod_and_owners(token))
    owners = statusserver.PodOwners(cluster, cluster)
    authorizer = statusserver.ProjectedServiceAccountTokenAuthorizer(issuer, owners.require)
    header = token.get("header", "Bearer <token>").replace("<token>", _signed(token))
    try:
        await authorizer.authorize(header, token["namespace"], token["name"])
    except statusserver.DeniedError:
        return {"authorized": False}
    return {"authorized": True}


def _publish(request: rest.Request) -> rest.FakeResponse:
    if request.path == "/.well-known/openid-configuration":
        return rest.FakeResponse(body={"issuer": _ISSUER, "id_token_signing_alg_values_supported": ["RS256"]})
    numbers = _private_key("issuer").public_key().public_numbers()
    key = {"kty": "RSA", "kid": _KEY_NAME, "alg": "RS256", "use": "sig"}
    for name, value in (("n", numbers.n), ("e", numbers.e)):
        key[name] = _base64url(value.to_bytes((value.bit_length() + 7) // 8))
    return rest.FakeResponse(body={"keys": [key]})


def _signed(token: Answer) -> str:
    now, how = time.time(), token.get("signed", "rs256")
    claims = {**token["claims"], "iss": token["claims"]["iss"].replace("<issuer>", _ISSUER)}
    for claim, offset in (("exp", "expIn"), ("nbf", "nbfIn"), ("iat", "iatIn")):
        if offset in token:
            claims[claim] = int(now + token[offset])
    algorithm = {"rs512": "RS512", "hmac": "HS256", "none": "none"}.get(how, "RS256")
    parts = [{"alg": algorithm, "kid": _KEY_NAME}, claims]
    text = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
    signature = _signature(how, text.encode())
    return f"{text}.{_base64url(signature)}"


def _signature(how: str, text: bytes) -> bytes:
    if how == "none":
        return b""
    key = _private_key("other" if how == "other" else "issuer")
    if how == "hmac":
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        code = hmac.HMAC(public, hashes.SHA256())
        code.update(text)
        return code.finalize()
    digest = hashes.SHA512() if how == "rs512" else hashes.SHA256()
    signature = key.sign(text, padding.PKCS1v15(), digest)
    return bytes([signature[0] ^ 1]) + signature[1:] if how == "broken" else signature


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _pod_and_owners(token: Answer) -> list[Object]:
    """Return the pod that a token names, and its owners up to the TrainJob that is to be updated."""
    pod = (token["claims"].get("kubernetes.io") or {}).get("pod")
    if pod is None:
        return []
    namespace, name = token["namespace"], token["name"]
    found: list[Object] = []
    owner: Mapping[str, Any] | None = None
    for kind, called, uid in (
        (TrainJob, name, "t"),
        (JobSet, name, "j"),
        (Job, f"{name}-node-0", "b"),
        (Pod, pod["name"], pod["uid"]),
    ):
        metadata = {"namespace": namespace, "name": called, "uid": uid}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        found.append(kind.from_dict({"metadata": metadata}))
        owner = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "name": called, "uid": uid}
    return found
