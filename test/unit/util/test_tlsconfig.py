# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import ssl
import warnings

import pytest
from controller_runtime import serving
from controller_runtime.webhook import SelfSigned

from pkg.apis.config.v1alpha1 import TLSOptions
from pkg.util import tlsconfig

ECDSA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def test_without_options_the_defaults_apply() -> None:
    settings = tlsconfig.resolve(TLSOptions())

    assert settings == tlsconfig.Settings()
    assert settings.server_options() == serving.TLSOptions()


def test_suites_are_given_to_openssl_by_its_own_names() -> None:
    settings = tlsconfig.resolve(
        TLSOptions(
            min_version="1.2", cipher_suites=[ECDSA, "TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"]
        )
    )

    assert settings.server_options().ciphers == "ECDHE-ECDSA-AES128-GCM-SHA256:AES128-SHA"
    assert settings.remarks == ("cipher suite TLS_RSA_WITH_AES_128_CBC_SHA is insecure",)


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        (TLSOptions(min_version="1.9"), "TLS version '1.9' is unknown; 1.2 is the oldest that is accepted"),
        (TLSOptions(min_version="1.0"), "TLS version 1.0 is insecure"),
        (TLSOptions(cipher_suites=["NO_SUCH"]), "cipher suite 'NO_SUCH' is unknown and left out"),
        (TLSOptions(next_protos=["h2", "http/1.1"]), "protocol 'h2' is not served; http/1.1 is"),
        (
            TLSOptions(cipher_suites=["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
            "only cipher suites for RSA are allowed; with the manager's own certificate, clients need TLS 1.3",
        ),
        (
            TLSOptions(cipher_suites=["TLS_AES_128_GCM_SHA256"]),
            "no cipher suite of TLS 1.2 is allowed; clients need TLS 1.3",
        ),
    ],
)
def test_a_setting_without_effect_is_remarked(options: TLSOptions, remark: str) -> None:
    assert tlsconfig.resolve(options).remarks == (remark,)


def test_an_unknown_word_leaves_the_default() -> None:
    settings = tlsconfig.resolve(TLSOptions(min_version="1.9", cipher_suites=["NO_SUCH"], next_protos=["h2"]))

    assert settings.server_options() == serving.TLSOptions()


def test_no_weaker_suite_is_allowed_than_those_that_are_named() -> None:
    settings = tlsconfig.resolve(TLSOptions(cipher_suites=["TLS_AES_256_GCM_SHA384"]))

    assert settings.server_options().minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("options", "newest", "agreed"),
    [
        pytest.param(TLSOptions(), ssl.TLSVersion.TLSv1_2, "TLSv1.2", id="1.2 by default"),
        pytest.param(TLSOptions(min_version="1.3"), ssl.TLSVersion.TLSv1_2, None, id="not 1.2 where 1.3 is asked"),
        pytest.param(TLSOptions(min_version="1.3"), ssl.TLSVersion.TLSv1_3, "TLSv1.3", id="1.3"),
        pytest.param(TLSOptions(), ssl.TLSVersion.TLSv1_1, None, id="not 1.1 by default"),
        pytest.param(TLSOptions(min_version="1.0"), ssl.TLSVersion.TLSv1, "TLSv1", id="1.0"),
        pytest.param(TLSOptions(min_version="1.1"), ssl.TLSVersion.TLSv1, None, id="not 1.0 where 1.1 is asked"),
        pytest.param(
            TLSOptions(min_version="1.0", cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"]),
            ssl.TLSVersion.TLSv1, "TLSv1", id="a suite of 1.0",
        ),
        pytest.param(TLSOptions(cipher_suites=[ECDSA]), ssl.TLSVersion.TLSv1_2, "TLSv1.2", id="a suite"),
        pytest.param(
            TLSOptions(cipher_suites=["TLS_AES_128_GCM_SHA256"]), ssl.TLSVersion.TLSv1_2, None, id="only suites of 1.3"
        ),
    ],
)  # fmt: skip
def test_server_and_client_agree_only_on_allowed_versions(
    options: TLSOptions, newest: ssl.TLSVersion, agreed: str | None
) -> None:
    context = SelfSigned().context()
    tlsconfig.resolve(options).server_options().apply(context)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the interpreter warns of old versions
        client.minimum_version, client.maximum_version = ssl.TLSVersion.TLSv1, newest
    client.set_ciphers("ALL:@SECLEVEL=0")

    assert _shake_hands(context, client) == agreed


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Return the TLS version that server and client agree on, or None if the handshake fails."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
    return ends[0].version()
