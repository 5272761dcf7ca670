# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates that Kubernetes servers and clients accept, and files that other users cannot read."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller_runtime.envtest import (
    CERTIFICATE_LIFETIME,
    Authority,
    kubeconfig,
    private_directory,
    write_private,
)
from controller_runtime.envtest.pki import service_account_key

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test-ca", now=NOW)


def test_a_serving_certificate_names_hosts_and_addresses_and_is_signed_by_the_authority(
    authority: Authority,
) -> None:
    pair = authority.server("apiserver", ["127.0.0.1", "localhost"], now=NOW)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    key = load_pem_private_key(pair.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"


def test_a_client_certificate_carries_the_user_and_every_group(authority: Authority) -> None:
    pair = authority.client("jane", ["developers", "system:masters"], now=NOW)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    subject = certificate.subject
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["jane"]
    groups = {each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)}
    assert groups == {"developers", "system:masters"}
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_after_utc == NOW + CERTIFICATE_LIFETIME


def test_a_name_that_x509_cannot_hold_is_refused(authority: Authority) -> None:
    with pytest.raises(ValueError, match="64"):
        authority.client("system:serviceaccount:kubeflow-system:" + "x" * 40)


def test_the_service_account_key_is_rsa_2048_and_its_halves_fit() -> None:
    private, public = service_account_key()
    key = load_pem_private_key(private, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 2048
    assert key.public_key() == load_pem_public_key(public)


def test_keys_are_readable_by_their_owner_alone(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.pair.write(tmp_path / "pki", "ca")
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    assert key.stat().st_mode & 0o777 == certificate.stat().st_mode & 0o777 == 0o600


def test_a_rewritten_file_is_whole_and_a_loose_directory_is_tightened(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = write_private(private_directory(tmp_path) / "token", "old and long")
    write_private(path, "new")
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_kubeconfig_holds_one_identity(authority: Authority) -> None:
    by_token = kubeconfig("https://127.0.0.1:1", authority.certificate, user="bot", token="t")
    assert by_token["users"] == [{"name": "bot", "user": {"token": "t"}}]
    by_certificate = kubeconfig("https://x", b"ca", user="jane", client=authority.client("jane", now=NOW))
    assert set(by_certificate["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert by_certificate["clusters"][0]["cluster"]["certificate-authority-data"] == "Y2E="
