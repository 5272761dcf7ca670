# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The package's public names."""

from controller_runtime.rest import http1


def test_the_exported_names_are_these() -> None:
    modules = {"connection", "dial", "incoming", "message", "origin", "pool"}
    assert {name for name in vars(http1) if not name.startswith("_")} - modules == {
        "Bounds",
        "CONNECT_TIMEOUT",
        "Connection",
        "Dialer",
        "Error",
        "GoneError",
        "Headers",
        "Heads",
        "Incoming",
        "ORDINARY",
        "Origin",
        "Pool",
        "without_credentials",
        "keepalive_socket",
    }
