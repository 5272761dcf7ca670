# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from controller_runtime import rest

from pkg.statusserver import DeniedError, Issuer, ProjectedServiceAccountTokenAuthorizer
from pkg.statusserver.tokens import LONGEST, BoundObject
from testkit.tokenissuer import Authority

AUDIENCE = "trainer.kubeflow.org/v1alpha1/namespaces/lab/trainjobs/bert/status"
NOW = 1_000_000.0


class Owners:
    """A stub that accepts one pod as belonging to any TrainJob."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, BoundObject]] = []

    async def require(self, namespace: str, train_job: str, pod: BoundObject) -> None:
        self.asked.append((namespace, train_job, pod))
        if pod.uid != "u":
            raise DeniedError("another pod")


def claims(**changed: Any) -> dict[str, Any]:
    kubernetes = {"namespace": "lab", "pod": {"name": "p", "uid": "u"}}
    return {"aud": [AUDIENCE], "exp": NOW + 60, "nbf": NOW - 60, "kubernetes.io": kubernetes, **changed}


async def authorize(authority: Authority, token: str, owners: Owners | None = None) -> None:
    issuer = Issuer(authority.transport)
    authorizer = ProjectedServiceAccountTokenAuthorizer(issuer, (owners or Owners()).require, lambda: NOW)
    await authorizer.authorize(f"Bearer {token}", "lab", "bert")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384", "ES512"])
async def test_a_token_of_the_clusters_issuer_is_accepted(authority: Authority, algorithm: str) -> None:
    authority.add("b", algorithm)
    owners = Owners()

    await authorize(authority, authority.sign("b", claims()), owners)

    assert owners.asked == [("lab", "bert", BoundObject("p", "u"))]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"aud": ["https://kubernetes.default.svc"]},
            "the token is not for the audience trainer.kubeflow.org/",
        ),
        ({"exp": NOW - 1}, "the token has expired"),
        ({"exp": None}, "the token has expired"),
        ({"nbf": NOW + 600}, "the token is not valid yet"),
        ({"iss": "https://other.example.org"}, "the token was not issued by this cluster"),
        ({"kubernetes.io": {"namespace": "prod"}}, "the token is not for the namespace lab"),
        ({"kubernetes.io": {"namespace": "lab"}}, "the token is not bound to a pod"),
        ({"kubernetes.io": {"namespace": "lab", "pod": {"name": "p"}}}, "the token is not bound to a pod"),
        ({"kubernetes.io": {"namespace": "lab", "pod": {"name": "p", "uid": "v"}}}, "another pod"),
        ({"aud": 5}, "the token is not a JSON Web Token of a service account"),
        ({"kubernetes.io": "lab"}, "the token is not a JSON Web Token of a service account"),
        ({"extra": "x" * LONGEST}, "the token is longer than 16 KiB"),
    ],
)
async def test_each_refusal_has_its_reason(
    authority: Authority, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DeniedError) as denied:
        await authorize(authority, authority.sign("a", claims(**changed)))
    assert str(denied.value).startswith(reason)


@pytest.mark.parametrize("changed", [{"exp": NOW}, {"nbf": NOW + 300}, {"nbf": None}])
async def test_a_token_is_accepted_at_the_limits_of_its_time(
    authority: Authority, changed: dict[str, Any]
) -> None:
    await authorize(authority, authority.sign("a", claims(**changed)))


async def test_a_signature_counts_only_with_the_algorithm_of_its_key(authority: Authority) -> None:
    good = authority.sign("a", claims())
    authority.add("rsa", "RS256")
    head, body, signature = good.split(".")
    for token in (
        authority.sign("a", claims(), alg="ES384"),
        authority.sign("rsa", claims(), alg="RS512"),
        authority.sign("rsa", claims(), alg="PS256"),
        authority.sign("a", claims(), alg="none"),
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{authority.sign('a', claims(aud=AUDIENCE)).split('.')[1]}.{signature}",
    ):
        with pytest.raises(DeniedError, match="the signature of the token is not valid"):
            await authorize(authority, token)


async def test_a_token_with_an_extension_is_refused(authority: Authority) -> None:
    with pytest.raises(DeniedError):
        await authorize(authority, authority.sign("a", claims(), crit=["b64"]))


@pytest.mark.parametrize(
    "token",
    [
        "a",
        "a.b",
        "a.b.c.d",
        "e30.e30.!",
        "e30=.e30.",
        "é.é.é",
        "e30.[.x",
        "\ud800.a.b",
        f"e30.e30.{'x' * (16 << 10)}",
    ],
)
async def test_text_that_is_no_token_is_refused_without_a_request(authority: Authority, token: str) -> None:
    with pytest.raises(DeniedError, match=r"not a JSON Web Token|not for the audience|longer than 16 KiB"):
        await authorize(authority, token)
    assert authority.transport.requests == []


async def test_a_token_that_does_not_concern_us_causes_no_request(authority: Authority) -> None:
    with pytest.raises(DeniedError):
        await authorize(authority, authority.sign("a", claims(aud=["other"])))
    assert authority.transport.requests == []


async def test_it_is_not_a_denial_if_the_keys_cannot_be_read(authority: Authority) -> None:
    authority.broken = True
    with pytest.raises(rest.TransportError):
        await authorize(authority, authority.sign("a", claims()))
