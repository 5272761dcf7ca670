# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from controller_runtime.certrotation import Material, pki

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = ["manager.system.svc", "127.0.0.1", "::1"]


@pytest.fixture(scope="module")
def made() -> Material:
    return pki.issue(NAMES, NOW)


def test_what_is_made_is_sound_for_its_names_until_it_is_due(made: Material) -> None:
    assert pki.inspect(made, NAMES, NOW)
    assert pki.inspect(made, NAMES[:1], NOW - timedelta(minutes=30))
    assert pki.renewal(made) == NOW + timedelta(days=365 - 120)
    assert pki.inspect(made, NAMES, pki.renewal(made) - timedelta(hours=1))
    verdict = pki.inspect(made, NAMES, pki.renewal(made))
    assert (bool(verdict), verdict.due, verdict.authority) == (False, True, "")


def test_what_is_issued_by_an_old_authority_is_due_with_the_authority(made: Material) -> None:
    ends = pki.certificate(made.ca_crt).not_valid_after_utc
    renewed = pki.reissue(made, NAMES, ends - timedelta(days=600))
    assert pki.renewal(renewed) == ends - timedelta(days=400)


def test_a_go_manager_can_take_the_secret_over(made: Material) -> None:
    """A Go manager expects the authority's key as PKCS#1, and its name also as a subject alternative name."""
    assert made.ca_key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    ca = pki.certificate(made.ca_crt)
    alternatives = ca.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["webhook-ca"]
    (name,) = ca.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == "webhook-ca"


def test_only_the_extensions_that_rfc_5280_wants_critical_are_critical(made: Material) -> None:
    for pem in (made.ca_crt, made.tls_crt):
        critical = {type(each.value) for each in pki.certificate(pem).extensions if each.critical}
        assert critical == {x509.BasicConstraints, x509.KeyUsage}


def test_data_is_kept_as_a_secret_keeps_it(made: Material) -> None:
    data = made.to_data()
    assert sorted(data) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert Material.from_data(data) == made
    assert not Material.from_data({"ca.crt": "no base64!"})


def test_a_serving_certificate_never_outlives_its_authority(made: Material) -> None:
    late = pki.certificate(made.ca_crt).not_valid_after_utc - timedelta(days=10)
    renewed = pki.reissue(made, NAMES, late)
    assert pki.certificate(renewed.tls_crt).not_valid_after_utc == late + timedelta(days=10)
