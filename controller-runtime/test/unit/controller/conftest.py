# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A fixture that creates controllers with predictable reconcile IDs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from controller_runtime import reconcile
from controller_runtime.controller import Controller, Options
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import ItemExponentialFailureRateLimiter


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., Controller]:
    numbers = itertools.count(1)

    def controller_of(reconciler: reconcile.Reconciler, **options: Any) -> Controller:
        options.setdefault("rate_limiter", ItemExponentialFailureRateLimiter[Request]())
        return Controller(
            request.node.name, reconciler, Options(**options), new_id=lambda: f"id-{next(numbers)}"
        )

    return controller_of
