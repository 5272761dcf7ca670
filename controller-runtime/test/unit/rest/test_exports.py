# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The package's public names."""

from types import ModuleType

from controller_runtime import rest


def test_the_exported_names_are_these() -> None:
    names = {name for name in dir(rest) if not isinstance(getattr(rest, name), ModuleType)}
    assert {name for name in names if not name.startswith("_")} == {
        "Anonymous",
        "AnswerError",
        "Basic",
        "CompleteResponse",
        "Config",
        "Impersonation",
        "ConfigError",
        "ConnectError",
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
        "config_from_dict",
        "decoded",
        "field_selector_string",
        "in_cluster_config",
        "load_chain",
        "load_config",
        "published_schema",
        "user_agent",
        "warnings_in",
    }
