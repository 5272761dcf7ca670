# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Declaring the webhooks of a kind in one sentence."""

from __future__ import annotations

from typing import Final, Generic, Self, TypeVar

from controller_runtime import manager, webhook
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object

T = TypeVar("T", bound=Object)

VALIDATE: Final = "validate"
MUTATE: Final = "mutate"


def webhook_path(verb: str, gvk: GVK) -> str:
    """Return the path that webhook configurations name: ``/validate-<group>-<version>-<kind>``."""
    return f"/{verb}-{gvk.group.replace('.', '-')}-{gvk.version}-{gvk.kind.lower()}"


class WebhookBuilder(Generic[T]):
    """Made by :func:`new_webhook_managed_by`."""

    def __init__(self, mgr: manager.Manager, kind: type[T]) -> None:
        self._mgr = mgr
        self._kind = kind
        self._handlers: dict[str, webhook.Handler] = {}

    def with_validator(self, validator: webhook.CustomValidator[T]) -> Self:
        """Have objects judged: ``webhook.ValidatorHandler`` at the path for ``validate``."""
        self._handlers[VALIDATE] = webhook.ValidatorHandler(self._kind, validator)
        return self

    def with_defaulter(self, defaulter: webhook.CustomDefaulter[T]) -> Self:
        """Have objects completed: ``webhook.DefaulterHandler`` at the path for ``mutate``."""
        self._handlers[MUTATE] = webhook.DefaulterHandler(self._kind, defaulter)
        return self

    def complete(self) -> None:
        """Register with the manager's webhook server, which thereby will be started.

        Raises:
            ValueError: there is neither validator nor defaulter, or a path is taken.
        """
        if not self._handlers:
            raise ValueError(f"webhook for {self._kind.gvk}: neither validator nor defaulter")
        for verb, handler in self._handlers.items():
            self._mgr.webhook_server.register(webhook_path(verb, self._kind.gvk), handler)


def new_webhook_managed_by(mgr: manager.Manager, kind: type[T]) -> WebhookBuilder[T]:
    """Begin the sentence: webhooks of ``kind``, served by ``mgr``."""
    return WebhookBuilder(mgr, kind)
