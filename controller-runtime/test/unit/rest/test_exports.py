# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The package's public names."""

from controller_runtime import rest


def test_the_exported_names_are_these() -> None:
    modules = {
        "config",
        "credentials",
        "discovery",
        "errors",
        "fake",
        "kubeconfig",
        "kubeconfig_import",
        "openapi",
        "proxy",
    }
    modules |= {"http1", "layers", "login", "roundtrip", "tls", "transport"}
    assert {name for name in vars(rest) if not name.startswith("_")} - modules == {
        "Anonymous",
        "AnswerError",
        "Basic",
        "Config",
        "Impersonation",
        "ConfigError",
        "Credentials",
        "FakeResponse",
        "FakeTransport",
        "InvalidRequestError",
        "NoKindMatchError",
        "PublishedSchema",
        "RESTMapper",
        "Request",
        "Response",
        "RestError",
        "RoundTripper",
        "StaticToken",
        "TLSConfig",
        "TokenFile",
        "Transport",
        "TransportError",
        "TransportTimeoutError",
        "decoded",
        "in_cluster_config",
        "load_config",
        "published_schema",
        "request",
        "user_agent",
    }
