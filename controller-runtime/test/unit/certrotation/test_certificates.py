# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import base64
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from controller_runtime import metrics
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.certrotation import Material, cluster, configurations, pki
from controller_runtime.client import interceptor
from controller_runtime.envtest import Authority
from controller_runtime.healthz import NotHealthyError
from controller_runtime.machinery.errors import ConflictError, ForbiddenError, NotFoundError
from controller_runtime.serving import certificates

SECRET = Secret(metadata=ObjectMeta(name="certs", namespace="system"))
NAMES = ["manager.system.svc"]
OTHER_TYPE: Any = ed25519.Ed25519PrivateKey.generate()


@pytest.mark.parametrize("exists", [True, False])
async def test_an_empty_or_absent_secret_is_filled_and_served_and_trusted_by_every_hook(
    world: Any, admits: Any, exists: bool
) -> None:
    if not exists:
        await world.client.delete(SECRET)
    async with world.replicas() as (replica,):
        with pytest.raises(NotHealthyError, match="has not been read yet"):
            replica.check()
        with anyio.fail_after(1):
            await replica.served()
        replica.check()
        material = await world.material()
        assert await world.bundles() == [material.ca_crt, material.ca_crt]
        assert admits(replica, material.ca_crt)
        assert not admits(replica, material.ca_crt, "elsewhere.svc")
    assert [(each.type, each.reason) for each in world.events.events] == [
        ("Normal", "WebhookCertificatesCreated")
    ]


async def test_the_first_certificate_is_announced_once_and_controllers_do_not_wait_for_it(world: Any) -> None:
    served: list[float] = []
    async with world.replicas(when_served=lambda: served.append(anyio.current_time())) as (replica,):
        assert not replica.need_leader_election()
        assert served == []
        await replica.served()
        await world.client.delete(SECRET)
        await anyio.sleep(60)
        assert len(served) == 1


async def test_replicas_that_start_together_end_with_one_authority(world: Any, admits: Any) -> None:
    async with world.replicas(3) as replicas:
        for replica in replicas:
            await replica.served()
        (one,) = {*await world.bundles()}
        assert one.count(b"BEGIN CERTIFICATE") == 1
        assert all(admits(replica, one) for replica in replicas)
    assert len(world.events.events) == 1


async def test_who_loses_the_race_for_the_secret_takes_the_winners(world: Any, admits: Any) -> None:
    winner = pki.issue(NAMES, world.now())

    async def lose(client: Any, obj: Any, **options: Any) -> Any:
        if isinstance(obj, Secret) and len(world.events.events) == 0 and not (await world.material()):
            await client.update(Secret(metadata=SECRET.metadata, data=winner.to_data()))
            raise ConflictError("another replica was faster", code=409, reason="Conflict")
        return await client.update(obj, **options)

    world.client = interceptor.wrap(world.client, interceptor.Funcs(update=lose))
    world.watch = lambda changed: anyio.sleep_forever()
    async with world.replicas() as (replica,):
        await replica.served()
        assert await world.material() == winner
        assert admits(replica, winner.ca_crt)
    assert world.events.events == []


@pytest.mark.parametrize("reverted", [False, True])
async def test_no_admission_fails_while_the_authority_changes_however_late_the_api_server_hears(
    world: Any, admits: Any, reverted: bool
) -> None:
    """The API server calls every replica twice a second, with a configuration that is 8 s old.

    If ``reverted``, a client replaces the configuration with its former state during the change.
    """
    async with world.replicas(3, propagation_delay=10.0) as replicas:
        for replica in replicas:
            await replica.served()
        before = await world.material()
        former = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
        seen = [(await world.bundles())[0]] * 16
        await world.client.delete(SECRET)
        for step in range(60):
            await anyio.sleep(0.5)
            if reverted and step == 16:
                found = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
                found.webhooks = former.webhooks
                await world.client.update(found)
            seen.append((await world.bundles())[0])
            for replica in replicas:
                assert admits(replica, seen[-16])
        after = await world.material()
        assert after.ca_crt != before.ca_crt
        assert all(admits(replica, after.ca_crt) for replica in replicas)
        assert not any(admits(replica, before.ca_crt) for replica in replicas)


async def test_the_former_authority_is_trusted_for_a_day_and_then_no_more(world: Any) -> None:
    async with world.replicas(2) as replicas:
        for replica in replicas:
            await replica.served()
        before = await world.material()
        await world.client.delete(SECRET)
        await anyio.sleep(60)
        after = await world.material()
        assert base64.b64decode((await world.secret()).data[pki.FORMER]) == before.ca_crt
        assert await world.bundles() == [after.ca_crt + before.ca_crt] * 2
        await anyio.sleep(23 * 3600)
        assert before.ca_crt in (await world.bundles())[0]
        await anyio.sleep(2 * 3600)
        assert await world.bundles() == [after.ca_crt] * 2
        found = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
        assert cluster.SINCE not in found.annotations


async def test_an_authority_is_replaced_a_year_ahead_and_the_secret_holds_the_former_one_for_a_day(
    world: Any, admits: Any
) -> None:
    async def stored() -> dict[str, bytes]:
        found = await world.client.get(Secret, SECRET.key)
        return {key: base64.b64decode(value) for key, value in (found.data or {}).items()}

    first = pki.issue(NAMES, world.now() - pki.CA_LIFETIME + timedelta(days=399))
    await world.put(pki.reissue(first, NAMES, world.now()))
    async with world.replicas() as (replica,):
        await replica.served()
        data = await stored()
        assert data[pki.FORMER] == first.ca_crt != data["ca.crt"]
        # Clients that have only one of the two authorities' bundles trust the replica, before and after the change.
        assert admits(replica, data["ca.crt"] + data[pki.FORMER])
        assert admits(replica, data[pki.FORMER] + data["ca.crt"])
        await anyio.sleep(configurations.OVERLAP.total_seconds() - 60)
        assert pki.FORMER in await stored()
        await anyio.sleep(86400 + 120)
        assert await stored() == {key: value for key, value in data.items() if key != pki.FORMER}
    (event,) = world.events.events
    assert (event.type, event.reason) == ("Normal", "WebhookCertificatesRenewed")
    assert "ca.crt expires on" in event.message


async def test_a_serving_certificate_is_renewed_120_days_ahead_under_the_same_authority(world: Any) -> None:
    async with world.replicas(2):
        await anyio.sleep(1)
        first = await world.material()
        world.began += timedelta(days=244)
        await anyio.sleep(2 * 3600)
        assert await world.material() == first
        await anyio.sleep(24 * 3600)
        second = await world.material()
        assert second.ca_crt == first.ca_crt
        assert second.tls_crt != first.tls_crt
        assert await world.bundles() == [first.ca_crt] * 2
    assert world.events.reasons == [
        "WebhookCertificatesCreated",
        "WebhookCertificatesRenewed",
    ]


async def test_a_certificate_is_renewed_when_it_is_due_and_its_context_is_kept_until_then(world: Any) -> None:
    until_due = timedelta(days=245) - timedelta(hours=3.5)
    first = pki.issue(NAMES, world.now() - until_due)
    await world.put(first)
    async with world.replicas() as (replica,):
        await replica.served()
        context = replica.context()
        await anyio.sleep(3.5 * 3600 - 60)
        assert await world.material() == first
        assert replica.context() is context
        await anyio.sleep(120)
        assert await world.material() != first
        assert replica.context() is not context


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"controller_runtime_webhook_{name}", labels) or 0


async def test_metrics_count_certificates_by_the_reason_and_show_their_expiry(world: Any) -> None:
    def issued() -> list[float]:
        reasons = ("created", "repaired", "renewed")
        return [sample("certificates_issued_total", reason=reason) for reason in reasons]

    counts = [issued()]
    async with world.replicas():
        await anyio.sleep(1)
        counts.append(issued())
        await world.put(replace(await world.material(), tls_key=b""))
        await anyio.sleep(1)
        counts.append(issued())
        world.began += timedelta(days=250)
        await anyio.sleep(2 * 3600)
        counts.append(issued())
    grown = [[now - then for then, now in zip(*each, strict=True)] for each in pairwise(counts)]
    assert grown == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    material = await world.material()
    for label, pem in (("authority", material.ca_crt), ("serving", material.tls_crt)):
        expiry = pki.certificate(pem).not_valid_after_utc.timestamp()
        assert sample("certificate_expiry_timestamp_seconds", certificate=label) == expiry


async def test_passes_that_fail_are_counted_and_repeated_after_growing_delays(world: Any) -> None:
    fails, times = True, list[float]()

    async def refuse(client: Any, kind: Any, key: Any) -> Any:
        if fails:
            times.append(anyio.current_time())
            raise ForbiddenError("you may not", code=403, reason="Forbidden")
        return await client.get(kind, key)

    def delays() -> list[float]:
        return [after - before for before, after in pairwise(times)]

    before = sample("certificates_failures_total")
    world.client = interceptor.wrap(world.client, interceptor.Funcs(get=refuse))
    world.watch = lambda changed: anyio.sleep_forever()
    async with world.replicas() as (replica,):
        await anyio.sleep(100)
        assert delays() == [0.5, 1, 2, 4, 8, 16, 30, 30]
        assert sample("certificates_failures_total") == before + len(times)
        fails = False
        await replica.served()
        fails = True
        times.clear()
        await anyio.sleep(3600 + 5)
        assert delays() == [0.5, 1, 2]


async def test_readiness_tells_why_an_expired_certificate_was_not_renewed(world: Any) -> None:
    async def refuse(client: Any, obj: Any, **options: Any) -> Any:
        raise ForbiddenError("you may not", code=403, reason="Forbidden")

    async with world.replicas(period=10.0) as (replica,):
        await replica.served()
        world.client = interceptor.wrap(world.client, interceptor.Funcs(update=refuse))
        world.began += timedelta(days=364)
        await anyio.sleep(15)
        replica.check()
        world.began += timedelta(days=1)
        with pytest.raises(NotHealthyError, match="the certificate has expired: you may not"):
            replica.check()


def usage(**chosen: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    return x509.KeyUsage(**dict.fromkeys(names, False) | {"digital_signature": True} | chosen)


def signed(
    good: Material,
    oid: x509.ObjectIdentifier,
    value: x509.ExtensionType | None = None,
    *,
    of_authority: bool = False,
) -> Material:
    """Return ``good`` with another value of an extension of a certificate, or without this extension."""
    old = pki.certificate(good.ca_crt if of_authority else good.tls_crt)
    key: Any = serialization.load_pem_private_key(good.ca_key, None)
    public: Any = old.public_key()
    builder = certificates.builder(
        old.subject, old.issuer, public, old.not_valid_before_utc, old.not_valid_after_utc
    )
    for extension in old.extensions:
        if extension.oid != oid:
            builder = builder.add_extension(extension.value, extension.critical)
    if value is not None:
        builder = builder.add_extension(value, critical=True)
    made = builder.sign(key, hashes.SHA256())
    pem = certificates.certificate_pem(made)
    if of_authority:
        return Material(pem, good.ca_key, good.tls_crt, good.tls_key)
    return Material(good.ca_crt, good.ca_key, pem, good.tls_key)


def garbled(good: Material) -> Material:
    """Return ``good`` with an authority whose name is not text, and no serving certificate."""
    body = pki.certificate(good.ca_crt).public_bytes(serialization.Encoding.DER)
    body = body.replace(b"webhook-ca", b"\xffebhook-ca", 2)
    text = base64.encodebytes(body).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n".encode()
    return Material(pem, good.ca_key, b"", b"")


BROKEN: dict[str, tuple[Callable[[Material, datetime], Material], str]] = {
    "a missing authority": (
        lambda good, _: Material(b"", b"", good.tls_crt, good.tls_key),
        "ca.crt is missing",
    ),
    "a missing serving key": (lambda good, _: replace(good, tls_key=b""), "tls.key is missing"),
    "garbage": (lambda good, _: replace(good, ca_crt=b"what?"), "ca.crt is not a certificate"),
    "a garbled key": (
        lambda good, _: replace(good, tls_key=good.tls_key[:40]),
        "tls.key is not a private key",
    ),
    "another authority's key": (
        lambda good, now: replace(good, ca_key=pki.issue(NAMES, now).ca_key),
        "ca.key does not belong to ca.crt",
    ),
    "another serving key": (
        lambda good, now: replace(good, tls_key=pki.reissue(good, NAMES, now).tls_key),
        "tls.key does not belong to tls.crt",
    ),
    "another authority's certificate": (
        lambda good, now: replace(pki.issue(NAMES, now), ca_crt=good.ca_crt, ca_key=good.ca_key),
        "tls.crt is not signed by ca.crt",
    ),
    "no authority": (
        lambda good, _: replace(good, ca_crt=good.tls_crt, ca_key=good.tls_key),
        "ca.crt is not an authority",
    ),
    "an authority that cannot sign": (
        lambda good, _: signed(good, ExtensionOID.KEY_USAGE, usage(key_cert_sign=False), of_authority=True),
        "ca.crt is not an authority",
    ),
    "an authority with a garbled name": (lambda good, _: garbled(good), "ca.crt is not an authority"),
    "a client's certificate": (
        lambda good, _: signed(
            good,
            ExtensionOID.EXTENDED_KEY_USAGE,
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
        ),
        "tls.crt is not for servers",
    ),
    "no host": (
        lambda good, _: signed(good, ExtensionOID.SUBJECT_ALTERNATIVE_NAME),
        "tls.crt does not name manager.system.svc",
    ),
    "garbled hosts": (
        lambda good, _: signed(
            good,
            ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
            x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"garbage"),
        ),
        "tls.crt names no host",
    ),
    "a key of another type": (
        lambda good, _: replace(good, tls_key=certificates.private_pem(OTHER_TYPE)),
        "tls.key is neither an RSA nor an EC key",
    ),
    "another host": (
        lambda good, now: pki.reissue(good, ["else.svc"], now),
        "tls.crt does not name manager.system.svc",
    ),
    "a key that OpenSSL finds too small": (
        lambda good, now: rsa_served(good, NAMES, now, bits=1024),
        "tls.crt cannot be used by a server: EE_KEY_TOO_SMALL",
    ),
    "an expired authority": (
        lambda _, now: pki.issue(NAMES, now - timedelta(days=4000)),
        "ca.crt expired on",
    ),
    "an expired certificate": (
        lambda good, now: pki.reissue(good, NAMES, now - timedelta(days=400)),
        "tls.crt expired on",
    ),
    "a certificate of the future": (
        lambda good, now: pki.reissue(good, NAMES, now + timedelta(days=2)),
        "tls.crt is not valid before",
    ),
}


@pytest.mark.parametrize(("make", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_secret_is_repaired_and_reported_and_what_is_sound_of_it_kept(
    world: Any, admits: Any, make: Callable[[Material, datetime], Material], why: str
) -> None:
    async with world.replicas() as (replica,):
        await replica.served()
        good = await world.material()
        world.events.events.clear()
        await world.put(make(good, world.now()), extra="a2VwdA==")
        for _ in range(30):
            await anyio.sleep(0.5)
            assert admits(replica, (await world.bundles())[0])
        mended = await world.material()
        assert pki.inspect(mended, NAMES, world.now())
        assert (mended.ca_crt == good.ca_crt) == why.startswith("tls")
        assert (await world.secret()).data["extra"] == "a2VwdA=="
    (event,) = world.events.events
    assert (event.type, event.reason) == ("Warning", "WebhookCertificatesRepaired")
    assert why in event.message


@pytest.mark.parametrize("of_authority", [True, False])
async def test_a_secret_made_by_somebody_else_is_used_as_it_is(
    world: Any, admits: Any, of_authority: bool
) -> None:
    theirs = pki.issue(NAMES, world.now() - timedelta(days=30))
    without = ExtensionOID.KEY_USAGE if of_authority else ExtensionOID.EXTENDED_KEY_USAGE
    theirs = signed(theirs, without, of_authority=of_authority)
    await world.put(theirs)
    async with world.replicas() as (replica,):
        await replica.served()
        assert await world.material() == theirs
        assert await world.bundles() == [theirs.ca_crt] * 2
        assert admits(replica, theirs.ca_crt)
    assert world.events.events == []


async def test_a_certificate_with_another_type_of_key_is_served_as_well(world: Any, admits: Any) -> None:
    async with world.replicas() as (replica,):
        await replica.served()
        ours = await world.material()
        await world.put(rsa_served(ours, ["manager.system.svc", "another.svc"], world.now()))
        await anyio.sleep(5)
        assert admits(replica, ours.ca_crt, "another.svc")


def rsa_served(material: Material, names: list[str], now: datetime, bits: int = 2048) -> Material:
    """Return ``material`` with an RSA serving certificate like those that Go's cert-controller issues."""
    authority = pki.certificate(material.ca_crt)
    signing: Any = serialization.load_pem_private_key(material.ca_key, None)
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    unsigned = certificates.leaf(
        certificates.builder(subject, authority.subject, key.public_key(), now, now + timedelta(days=365)),
        signing.public_key(),
        ExtendedKeyUsageOID.SERVER_AUTH,
    )
    made = unsigned.add_extension(certificates.alternative_names(names), critical=False).sign(
        signing, hashes.SHA256()
    )
    return Material(
        material.ca_crt,
        material.ca_key,
        certificates.certificate_pem(made),
        certificates.private_pem(key),
    )


async def test_a_configuration_that_is_replaced_or_made_later_is_told_of_the_authority(world: Any) -> None:
    configuration = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
    await world.client.delete(configuration)
    async with world.replicas() as (replica,):
        with anyio.fail_after(1):
            await replica.served()
        configuration.metadata = ObjectMeta(name="validator")
        made = await world.client.create(configuration)
        await anyio.sleep(1)
        authority = (await world.material()).ca_crt
        assert await world.bundles() == [authority] * 2
        made = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
        made.webhooks[1].client_config.ca_bundle = None
        await world.client.update(made)
        await anyio.sleep(1)
        assert await world.bundles() == [authority] * 2


async def test_a_change_that_is_reported_while_the_configurations_are_read_is_not_lost(world: Any) -> None:
    async def read(client: Any, kind: Any, key: Any, **options: Any) -> Any:
        found = await client.get(kind, key, **options)
        await anyio.sleep(0.3)  # the answer is under way
        return found

    direct, world.client = world.client, interceptor.wrap(world.client, interceptor.Funcs(get=read))
    async with world.replicas() as (replica,):
        await replica.served()
        made = await direct.get(ValidatingWebhookConfiguration, ("", "validator"))
        made.metadata.labels = {"team": "a"}
        made = await direct.update(made)
        await anyio.sleep(0.3)
        made.webhooks[1].client_config.ca_bundle = None
        await direct.update(made)
        await anyio.sleep(5)
        assert await world.bundles() == [(await world.material()).ca_crt] * 2


def mutating(name: str = "defaulter") -> MutatingWebhookConfiguration:
    service = {"name": "manager", "namespace": "system", "path": "/mutate"}
    hooks = [{"name": "hook", "clientConfig": {"service": service}}]
    return MutatingWebhookConfiguration.from_dict({"metadata": {"name": name}, "webhooks": hooks})


async def test_the_mutating_configuration_trusts_the_same_authority(world: Any) -> None:
    world.client.add(mutating())
    async with world.replicas() as (replica,):
        await replica.served()
        found = await world.client.get(MutatingWebhookConfiguration, ("", "defaulter"))
        authority = base64.b64decode(found.webhooks[0].client_config.ca_bundle)
        assert [authority] * 2 == await world.bundles()
        found.webhooks[0].client_config.ca_bundle = None
        await world.client.update(found)
        await anyio.sleep(1)
        found = await world.client.get(MutatingWebhookConfiguration, ("", "defaulter"))
        assert base64.b64decode(found.webhooks[0].client_config.ca_bundle) == authority


async def test_a_role_without_mutating_configurations_suffices(world: Any) -> None:
    async def refuse(client: Any, kind: Any, key: Any) -> Any:
        if kind is MutatingWebhookConfiguration:
            raise ForbiddenError("you may not", code=403, reason="Forbidden")
        return await client.get(kind, key)

    world.client = interceptor.wrap(world.client, interceptor.Funcs(get=refuse))
    async with world.replicas() as (replica,):
        with anyio.fail_after(1):
            await replica.served()
        replica.check()
        assert await world.bundles() == [(await world.material()).ca_crt] * 2


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.example.com"])
async def test_hosts_that_hooks_call_by_url_are_named_in_the_certificate(
    world: Any, admits: Any, host: str
) -> None:
    async with world.replicas() as (replica,):
        await replica.served()
        before = await world.material()
        found = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
        found.webhooks[0].client_config.service = None
        found.webhooks[0].client_config.url = f"https://{host}:9443/validate"
        await world.client.update(found)
        await anyio.sleep(1)
        after = await world.material()
        assert after.ca_crt == before.ca_crt
        assert admits(replica, after.ca_crt, host)
        assert admits(replica, after.ca_crt)


@pytest.mark.parametrize("host", ["exämple.com", "[fe80::1%25eth0]", "[name]"])
async def test_a_host_that_no_certificate_can_name_is_left_out(world: Any, admits: Any, host: str) -> None:
    found = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
    found.webhooks[0].client_config.service = None
    found.webhooks[0].client_config.url = f"https://{host}:9443/validate"
    await world.client.update(found)
    async with world.replicas() as (replica,):
        await replica.served()
        first = await world.material()
        await anyio.sleep(10)
        assert await world.material() == first
        assert admits(replica, first.ca_crt)


async def test_an_authority_trusted_before_ours_stays_trusted_for_the_overlap(world: Any) -> None:
    theirs = pki.issue(["x"], world.now() - timedelta(days=900)).ca_crt
    found = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
    found.webhooks[0].client_config.ca_bundle = base64.b64encode(theirs).decode()
    await world.client.update(found)
    async with world.replicas() as (replica,):
        await replica.served()
        ours = (await world.material()).ca_crt
        assert await world.bundles() == [ours + theirs] * 2


@pytest.mark.parametrize("verb", ["get", "update"])
async def test_a_denied_request_is_told_by_readiness_and_tried_again(world: Any, verb: str) -> None:
    denied = True

    async def refuse(client: Any, what: Any, *args: Any, **options: Any) -> Any:
        if denied and ValidatingWebhookConfiguration in (what, type(what)):
            raise ForbiddenError("you may not", code=403, reason="Forbidden")
        return await getattr(client, verb)(what, *args, **options)

    world.client = interceptor.wrap(world.client, interceptor.Funcs(**{verb: refuse}))
    world.watch = lambda changed: anyio.sleep_forever()
    async with world.replicas() as (replica,):
        await anyio.sleep(100)
        with pytest.raises(NotHealthyError, match="certificates are not ready: you may not"):
            replica.check()
        denied = False
        with anyio.fail_after(31):
            await replica.served()
        replica.check()


async def test_readiness_tells_that_the_certificate_has_expired(world: Any) -> None:
    async with world.replicas() as (replica,):
        await replica.served()
    world.began = pki.certificate((await world.material()).tls_crt).not_valid_after_utc
    world.began -= timedelta(seconds=anyio.current_time() - 1000 + 1)
    replica.check()
    world.began += timedelta(seconds=1)
    with pytest.raises(NotHealthyError, match="the certificate has expired"):
        replica.check()


async def test_a_certificate_that_cannot_be_loaded_at_the_moment_is_served_later(
    world: Any, admits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(name: str, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with world.replicas() as (replica,):
        await replica.served()
        ours = await world.material()
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", exhausted)
            await world.put(pki.reissue(ours, ["manager.system.svc", "another.svc"], world.now()))
            await anyio.sleep(60)
            assert admits(replica, ours.ca_crt)
        await anyio.sleep(31)
        assert admits(replica, ours.ca_crt, "another.svc")


def test_many_rotations_within_a_day_do_not_grow_the_bundle_for_ever(world: Any) -> None:
    configuration = ValidatingWebhookConfiguration.from_dict(
        {
            "metadata": {"name": "validator"},
            "webhooks": [{"name": "hook", "clientConfig": {"url": "https://x"}}],
        }
    )
    now = world.began
    authority = b""
    for minute in range(configurations.MAX_FORMER + 5):
        now = world.began + timedelta(minutes=minute)
        authority = Authority.create("webhook-ca", now=now).certificate
        assert configurations.trust(configuration, authority, b"", now)
        assert not configurations.trust(configuration, authority, b"", now)
    assert configuration.webhooks is not None
    assert configuration.webhooks[0].client_config is not None
    found = base64.b64decode(configuration.webhooks[0].client_config.ca_bundle or "")
    assert found.count(b"BEGIN CERTIFICATE") == configurations.MAX_FORMER + 1
    assert found.startswith(authority)
    assert configurations.trust(configuration, authority, b"", now + timedelta(hours=25))
    assert base64.b64decode(configuration.webhooks[0].client_config.ca_bundle or "") == authority


def configuration_with(*bundles: bytes) -> ValidatingWebhookConfiguration:
    hooks = [
        {
            "name": f"hook-{i}",
            "clientConfig": {"url": "https://x", "caBundle": base64.b64encode(each).decode()},
        }
        for i, each in enumerate(bundles)
    ]
    return ValidatingWebhookConfiguration.from_dict({"metadata": {"name": "validator"}, "webhooks": hooks})


def bundles_of(configuration: ValidatingWebhookConfiguration) -> list[bytes]:
    found = configuration.to_dict()["webhooks"]
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in found]


def test_a_bundle_that_makes_no_sense_is_replaced(world: Any) -> None:
    authority = Authority.create("webhook-ca").certificate
    configuration = configuration_with(b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n", authority)
    assert configurations.trust(configuration, authority, b"", world.began)
    assert bundles_of(configuration) == [authority] * 3


def test_an_authority_that_comes_as_a_chain_is_not_taken_for_a_former_one(world: Any) -> None:
    chain = b"".join(Authority.create(name).certificate for name in ("one", "two"))
    configuration = configuration_with(b"")
    assert configurations.trust(configuration, chain, b"", world.began)
    assert not configurations.trust(configuration, chain, b"", world.began + timedelta(days=3))
    assert bundles_of(configuration) == [chain]


def test_hooks_that_trust_different_authorities_come_to_trust_all_of_them(world: Any) -> None:
    ours, one, two = (Authority.create(name).certificate for name in ("ours", "one", "two"))
    configuration = configuration_with(one, two)
    assert configurations.trust(configuration, ours, b"", world.began)
    first, second = bundles_of(configuration)
    assert first == second
    assert first.startswith(ours)
    assert one in first
    assert two in first


def test_what_we_still_serve_with_stays_trusted_whatever_became_of_the_configuration(world: Any) -> None:
    """A Secret restored from a backup has an old authority: the overlap with the served one starts again."""
    old, served = (Authority.create(name).certificate for name in ("old", "served"))
    configuration = configuration_with(old)
    now = world.began + timedelta(days=30)
    assert configurations.trust(configuration, old, served, now)
    assert bundles_of(configuration) == [old + served]
    assert configuration.annotations[cluster.SINCE] == now.isoformat(timespec="seconds")
    assert not configurations.trust(configuration, old, b"", now + timedelta(hours=23))
    assert configurations.trust(configuration, old, b"", now + timedelta(hours=25))
    assert bundles_of(configuration) == [old]


def test_an_overlap_whose_start_somebody_removed_starts_again(world: Any) -> None:
    old, current = (Authority.create(name).certificate for name in ("old", "current"))
    configuration = configuration_with(old)
    assert configurations.trust(configuration, current, b"", world.began)
    configuration.metadata.annotations = None
    now = world.began + timedelta(hours=1)
    assert configurations.trust(configuration, current, b"", now)
    assert configuration.annotations[cluster.SINCE] == now.isoformat(timespec="seconds")


async def test_a_namespace_that_is_missing_is_what_readiness_tells(world: Any) -> None:
    async def no_namespace(_client: Any, _obj: Any, **_options: Any) -> Any:
        raise NotFoundError('namespaces "system" not found', code=404, reason="NotFound")

    await world.client.delete(SECRET)
    world.client = interceptor.wrap(world.client, interceptor.Funcs(create=no_namespace))
    world.watch = lambda changed: anyio.sleep_forever()
    async with world.replicas() as (replica,):
        await anyio.sleep(1)
        with pytest.raises(NotHealthyError, match='namespaces "system" not found'):
            replica.check()


def conversion(**called: Any) -> CustomResourceDefinition:
    webhook = {"clientConfig": called, "conversionReviewVersions": ["v1"]}
    return CustomResourceDefinition.from_dict(
        {
            "metadata": {"name": "websites.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"kind": "Website", "plural": "websites"},
                "scope": "Namespaced",
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {}}}
                ],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }
    )


def test_the_conversion_of_a_crd_trusts_the_authority_and_keeps_everything_else(world: Any) -> None:
    service = {"name": "converter", "namespace": "system", "path": "/convert", "port": 8443}
    crd = conversion(service=service)
    authority = pki.issue(["x"], world.began).ca_crt
    before = crd.to_dict()

    assert configurations.server_names("manager", "system", [crd]) == [
        "manager.system.svc",
        "converter.system.svc",
    ]
    assert configurations.trust(crd, authority, b"", world.began)
    assert not configurations.trust(crd, authority, b"", world.began)

    after = crd.to_dict()
    called = after["spec"]["conversion"]["webhook"]["clientConfig"]
    assert base64.b64decode(called.pop("caBundle")) == authority
    assert after == before


def test_a_crd_without_a_conversion_webhook_is_left_alone(world: Any) -> None:
    crd = conversion()
    assert crd.spec is not None
    crd.spec.conversion = {"strategy": "None"}
    assert not configurations.trust(crd, b"", b"", world.began)
    assert configurations.server_names("manager", "system", [crd]) == NAMES


async def test_every_named_configuration_gets_the_authority(world: Any) -> None:
    crd = conversion(service={"name": "manager", "namespace": "system"})
    first = await world.client.get(ValidatingWebhookConfiguration, ("", "validator"))
    second = ValidatingWebhookConfiguration.from_dict(first.to_dict())
    second.metadata = ObjectMeta(name="second")
    world.client.add(second)
    world.client.add(crd)
    async with world.replicas(validating=("validator", "second"), conversions=(crd.name,)) as (replica,):
        await replica.served()
    authority = (await world.material()).ca_crt
    found = [
        await world.client.get(ValidatingWebhookConfiguration, ("", name)) for name in ("validator", "second")
    ]
    bundles = [hook.client_config.ca_bundle for each in found for hook in each.webhooks]
    stored = await world.client.get(CustomResourceDefinition, crd.key)
    bundles.append(stored.spec.conversion["webhook"]["clientConfig"]["caBundle"])
    assert len(bundles) == 5
    assert {base64.b64decode(each) for each in bundles} == {authority}
