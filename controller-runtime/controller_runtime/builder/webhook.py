# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The webhooks of a kind, declared in one sentence."""

from __future__ import annotations

from typing import Any, Final, Generic, Self, TypeVar

from controller_runtime import log, manager, webhook
from controller_runtime.machinery import GVK, Object

T = TypeVar("T", bound=Object)
_log = log.logger_from("controller-runtime.builder")

VALIDATE: Final = "validate"
MUTATE: Final = "mutate"


def webhook_path(verb: str, gvk: GVK) -> str:
    """Return the path that webhook configurations name: ``/validate-<group>-<version>-<kind>``."""
    return f"/{verb}-{gvk.group.replace('.', '-')}-{gvk.version}-{gvk.kind.lower()}"


class WebhookBuilder(Generic[T]):
    """Declares the webhooks of one kind. Create it with :func:`new_webhook_managed_by`."""

    def __init__(self, mgr: manager.Manager, kind: type[T]) -> None:
        self._mgr = mgr
        self._kind = kind
        self._handlers: dict[str, webhook.Handler] = {}
        self._paths: dict[str, str] = {}
        self._spokes: list[webhook.Spoke[Any, T]] = []
        self._completed = False

    def __del__(self) -> None:
        if not self._completed and (self._handlers or self._spokes):
            _log.warning(
                "Declared webhooks are not served: complete() was never called",
                kind=str(self._kind.gvk.group_kind),
            )

    def with_validator(self, validator: webhook.CustomValidator[T]) -> Self:
        """Validate objects: ``webhook.ValidatorHandler`` at the path for ``validate``."""
        return self._with(VALIDATE, webhook.ValidatorHandler(self._kind, validator))

    def with_defaulter(self, defaulter: webhook.CustomDefaulter[T]) -> Self:
        """Fill in defaults: ``webhook.DefaulterHandler`` at the path for ``mutate``."""
        return self._with(MUTATE, webhook.DefaulterHandler(self._kind, defaulter))

    def with_mutator(self, mutator: webhook.CustomMutator[T]) -> Self:
        """Change objects: ``webhook.MutatorHandler`` at the path for ``mutate``.

        Unlike a defaulter, a mutator also gets the request and the stored object.
        """
        return self._with(MUTATE, webhook.MutatorHandler(self._kind, mutator))

    def _with(self, verb: str, handler: webhook.Handler) -> Self:
        if verb in self._handlers:
            raise ValueError(
                f"webhook for {self._kind.gvk}: a second handler to {verb} would replace the first"
            )
        self._handlers[verb] = handler
        return self

    def with_validator_custom_path(self, path: str) -> Self:
        """Serve the validator at ``path`` instead of the default path."""
        self._paths[VALIDATE] = path
        return self

    def with_defaulter_custom_path(self, path: str) -> Self:
        """Serve the defaulter or mutator at ``path`` instead of the default path."""
        self._paths[MUTATE] = path
        return self

    def with_conversion(self, *versions: webhook.Spoke[Any, T] | type[webhook.Convertible[T]]) -> Self:
        """Convert objects between the builder's kind, which is the hub, and other versions of the kind.

        A version is a :class:`webhook.Spoke`, or a kind that converts itself. The webhooks of all kinds share the path
        ``/convert``.

        Raises:
            ValueError: a kind cannot be converted.
        """
        for version in versions:
            self._spokes.append(version if isinstance(version, webhook.Spoke) else webhook.spoke_of(version))
        return self

    def complete(self) -> None:
        """Register with the manager's webhook server, which starts with the manager.

        Raises:
            ValueError: nothing is declared; a path is taken, is not valid or has no handler; or the manager's scheme
                knows a version of the kind that cannot be converted.
        """
        self._completed = True
        if not self._handlers and not self._spokes:
            raise ValueError(f"webhook for {self._kind.gvk}: neither validator nor defaulter nor conversion")
        for verb, path in self._paths.items():
            if verb not in self._handlers:
                raise ValueError(
                    f"webhook for {self._kind.gvk}: path {path} is given, but no handler to {verb}"
                )
            if not path.startswith("/") or any(not char.isprintable() or char in " ?#%" for char in path):
                raise ValueError(f"webhook for {self._kind.gvk}: {path!r} is not a valid path")
        for verb, handler in self._handlers.items():
            path = self._paths.get(verb) or webhook_path(verb, self._kind.gvk)
            self._mgr.webhook_server.register(path, handler)
        if self._spokes:
            conversions, kind = self._mgr.webhook_server.conversions, self._kind.gvk.group_kind
            conversions.register(self._kind, *self._spokes)
            known = (each.gvk for each in self._mgr.scheme)
            conversions.check(kind, (gvk.version for gvk in known if gvk.group_kind == kind))


def new_webhook_managed_by(mgr: manager.Manager, kind: type[T]) -> WebhookBuilder[T]:
    """Return a builder of the webhooks of ``kind``, which ``mgr`` serves."""
    given: object = kind
    if not isinstance(given, type) or not issubclass(given, Object):
        raise TypeError(f"webhooks are for a kind, which is a class, not {given!r:.100}")
    return WebhookBuilder(mgr, kind)
