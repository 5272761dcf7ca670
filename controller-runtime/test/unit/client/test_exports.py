# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The package's public names."""

import pytest

from controller_runtime import client


def test_what_tests_use_is_imported_when_asked_for() -> None:
    assert client.interceptor.__name__ == "controller_runtime.client.interceptor"
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        client.Nonsense  # type: ignore[attr-defined]  # noqa: B018 -- the access must fail
