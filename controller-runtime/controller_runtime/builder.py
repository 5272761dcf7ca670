# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers and webhooks, each declared in one sentence: managed by, for, owns, watches, complete.

    new_controller_managed_by(mgr).for_(CronTab).owns(Job).complete(reconciler)
    new_webhook_managed_by(mgr, CronTab).with_validator(validator).complete()

A method may be short for a lower-level call. Then its docstring names that call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec

from controller_runtime import controller, handler, log, predicate, reconcile, source, webhook
from controller_runtime.controller import LogConstructor
from controller_runtime.machinery import Object, arguments, metadata_only
from controller_runtime.manager import ControllerDefaults, Manager
from controller_runtime.reconcile import ControllerError

T = TypeVar("T", bound=Object)
_log = log.logger_from("controller-runtime.builder")
Predicates = Iterable[predicate.Predicate[T]]
_VALIDATE: Final = "validate"
_MUTATE: Final = "mutate"


class _WatchedKind(msgspec.Struct, frozen=True):
    kind: type[Object]
    handler: Callable[[], handler.EventHandler[Any]]
    predicates: tuple[predicate.Predicate[Any], ...]
    when: source.When | None = None


class ControllerManager(Protocol):
    """The part of a manager that a builder uses."""

    controller_names: set[str]

    @property
    def cache(self) -> source.Informers:
        """Where kinds are watched."""

    @property
    def controller_options(self) -> ControllerDefaults:
        """The defaults of every controller."""

    def add(self, runnable: controller.Controller, /) -> None:
        """Run the controller with the manager."""


def new_controller_managed_by(mgr: ControllerManager) -> Builder:
    """Return a builder of a controller that ``mgr`` runs."""
    return Builder(mgr)


class Builder:
    """Declares one controller. Nothing happens before :meth:`complete` or :meth:`build`."""

    def __init__(self, mgr: ControllerManager) -> None:
        self._mgr = mgr
        self._name = ""
        self._options = controller.Options()
        self._log_constructor: LogConstructor | None = None
        self._kind: type[Object] | None = None
        self._filters: list[predicate.Predicate[Any]] = []
        self._watches: list[_WatchedKind] = []
        self._sources: list[source.Source] = []
        self._problem = ""
        self._built = False

    def __del__(self) -> None:
        if not self._built and (self._watches or self._sources):
            name = self._name or (self._kind.gvk.kind.lower() if self._kind is not None else "")
            _log.warning("Declared controller does not run: complete() was never called", controller=name)

    def named(self, name: str) -> Self:
        """Use ``name`` for the controller in logs and metrics, instead of the reconciled kind in lower case."""
        self._name = name
        return self

    def for_(self, kind: type[T], *, predicates: Predicates[T] = (), only_metadata: bool = False) -> Self:
        """Reconcile objects of ``kind`` when they change. Call this method only once.

        Short for ``watches(kind, handler.EnqueueRequestForObject())``. Without :meth:`named`, the controller gets the
        name of the kind.
        """
        if self._kind is not None:
            return self._note_problem("for_() was called twice: a controller reconciles one kind")
        self._kind = kind
        return self.watches(
            kind, handler.EnqueueRequestForObject(), predicates=predicates, only_metadata=only_metadata
        )

    def owns(
        self,
        kind: type[T],
        *,
        predicates: Predicates[T] = (),
        match_every_owner: bool = False,
        only_metadata: bool = False,
    ) -> Self:
        """When an object of ``kind`` changes, reconcile the owner that controls it.

        Only owners of the reconciled kind count: see :meth:`for_`. With ``match_every_owner``, owners that do not
        control the object are reconciled, too. Short for ``watches(kind, handler.enqueue_request_for_owner(Owner,
        only_controller=True))``, where ``Owner`` is the reconciled kind.
        """

        def of_the_owner() -> handler.EventHandler[Object]:  # for_() may come later in the sentence
            if self._kind is None:
                raise ControllerError(f"owns({kind.gvk.kind}): the owner kind is unknown; call for_()")
            return handler.enqueue_request_for_owner(self._kind, only_controller=not match_every_owner)

        return self._watch(kind, of_the_owner, predicates, only_metadata)

    def watches(
        self,
        kind: type[T],
        handle: handler.EventHandler[T],
        *,
        predicates: Predicates[T] = (),
        only_metadata: bool = False,
        when: source.When | None = None,
    ) -> Self:
        """When an object of ``kind`` changes, call ``handle``, which adds requests.

        Short for ``watches_raw_source(source.Kind(mgr.cache, kind, handle, *predicates))``. With ``only_metadata``, the
        cache keeps only the metadata of objects, and handlers get only the metadata. With ``when``, the watch starts
        after ``when`` has returned (``source.Deferred``); reconciles do not wait for the watch.
        """
        given: object = handle
        if not isinstance(given, handler.EventHandler):
            if isinstance(given, type):
                return self._note_problem(f"the handler {given.__name__} is a class: pass an instance")
            hint = "; use handler.enqueue_requests_from_map_func(…)" if callable(given) else ""
            return self._note_problem(f"watches() takes an EventHandler, not {type(given).__name__}{hint}")
        return self._watch(kind, lambda: handle, predicates, only_metadata, when)

    def watches_raw_source(self, src: source.Source) -> Self:
        """Add requests from a custom source. Event filters do not apply to such a source."""
        given: object = src
        if not isinstance(given, source.Source):
            hint = "; use source.Func(…)" if callable(given) else ""
            return self._note_problem(
                f"watches_raw_source() takes a Source, not {type(given).__name__}{hint}"
            )
        self._sources.append(src)
        return self

    def with_event_filter(self, *predicates: predicate.Predicate[Any]) -> Self:
        """Drop the events that do not pass all these predicates. This applies to every watched kind."""
        self._filters.extend(predicates)
        return self._note_problem(_problem_of_predicates(predicates))

    def with_options(self, options: controller.Options) -> Self:
        """Use these options. The manager's defaults apply to the fields that are unset."""
        self._options = options
        given: object = options
        if not isinstance(given, controller.Options):
            self._note_problem(f"with_options() takes ctrl.ControllerOptions, not {type(given).__name__}")
        return self

    def with_log_constructor(self, constructor: LogConstructor) -> Self:
        """Add the keys and values that ``constructor`` returns to the controller's log lines."""
        self._log_constructor = constructor
        return self

    def complete(self, reconciler: reconcile.Reconciler) -> None:
        """Make the controller and add it to the manager.

        Raises:
            ControllerError: the declaration or the reconciler is not valid, or the name is taken.
        """
        self.build(reconciler)

    def build(self, reconciler: reconcile.Reconciler) -> controller.Controller:
        """Work like :meth:`complete`, and return the controller."""
        self._built = True
        name = self._check()
        options = self._options
        if self._log_constructor is not None:
            options = dataclasses.replace(options, log_constructor=self._log_constructor)
        if self._kind is not None:
            options = dataclasses.replace(options, kind=self._kind.gvk)
        made = controller.Controller(name, reconciler, options, defaults=self._mgr.controller_options)
        for watch in self._watches:
            predicates = (*self._filters, *watch.predicates)
            kind = source.Kind(self._mgr.cache, watch.kind, watch.handler(), *predicates)
            made.watch(kind if watch.when is None else source.Deferred(kind, watch.when))
        for src in self._sources:
            made.watch(src)
        if name in self._mgr.controller_names and not made.settings.skip_name_validation:
            raise ControllerError(f"controller with name {name} already exists: logs and metrics would mix")
        self._mgr.controller_names.add(name)
        self._mgr.add(made)
        return made

    def _note_problem(self, problem: str | None) -> Self:
        """Keep the first problem of the declaration, which :meth:`build` raises."""
        self._problem = self._problem or problem or ""
        return self

    def _check(self) -> str:
        if self._problem:
            known = self._name or getattr(getattr(self._kind, "gvk", None), "kind", "").lower()
            raise ControllerError(f"controller {known}: {self._problem}" if known else self._problem)
        name = self._name or (self._kind.gvk.kind.lower() if self._kind is not None else "")
        if not name:
            raise ControllerError("a controller needs for_() or named()")
        if not self._watches and not self._sources:
            raise ControllerError(
                f"controller {name}: nothing would ever wake it; "
                "use for_(), owns(), watches() or watches_raw_source()"
            )
        return name

    def _watch(
        self,
        kind: type[T],
        handle: Callable[[], handler.EventHandler[Any]],
        predicates: Predicates[T],
        only_metadata: bool,
        when: source.When | None = None,
    ) -> Self:
        if isinstance(predicates, Iterable):
            predicates = tuple(predicates)
        if (problem := _problem_of(kind, predicates)) is not None:
            return self._note_problem(problem)
        watched = metadata_only(kind) if only_metadata else kind
        if when is None:
            # Pydantic would build the class for the first object, and stop the event loop for up to 0.1 s.
            watched.model_rebuild(raise_errors=False)
        self._watches.append(_WatchedKind(watched, handle, predicates, when))
        return self


def _problem_of(kind: object, predicates: object) -> str | None:
    """Return the mistake in the arguments of for_, owns or watches, or None."""
    if not isinstance(kind, type):
        return f"a kind is a class, not an instance of {type(kind).__name__}"
    if not issubclass(kind, Object):
        return f"{kind.__name__} is not a kind: a subclass of Object with group, version and plural"
    try:
        kind.gvk  # noqa: B018 -- raises for a base class
    except TypeError as error:
        return str(error)
    return _problem_of_predicates(predicates)


def _problem_of_predicates(given: object) -> str | None:
    if not isinstance(given, Iterable):
        return f"predicates= takes a list of predicates, not {type(given).__name__}"
    for predicate_ in given:
        if isinstance(predicate_, type):
            return f"the predicate {predicate_.__name__} is a class: pass an instance"
        if not all(
            callable(getattr(predicate_, name, None)) for name in ("create", "update", "delete", "generic")
        ):
            hint = "; use predicate.from_object(…)" if callable(predicate_) else ""
            return f"{type(predicate_).__name__} is not a predicate{hint}"
        for name in ("create", "update", "delete", "generic"):
            try:
                arguments.must_be_plain(getattr(predicate_, name))
            except TypeError as error:
                return str(error)
    return None


def new_webhook_managed_by(mgr: Manager, kind: type[T]) -> WebhookBuilder[T]:
    """Return a builder of the webhooks of ``kind``, which ``mgr`` serves."""
    given: object = kind
    if not isinstance(given, type) or not issubclass(given, Object):
        raise TypeError(f"webhooks are for a kind, which is a class, not {given!r:.100}")
    return WebhookBuilder(mgr, kind)


class WebhookBuilder(Generic[T]):
    """Declares the webhooks of one kind. Create it with :func:`new_webhook_managed_by`."""

    def __init__(self, mgr: Manager, kind: type[T]) -> None:
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
        return self._with(_VALIDATE, webhook.ValidatorHandler(self._kind, validator))

    def with_defaulter(self, defaulter: webhook.CustomDefaulter[T]) -> Self:
        """Fill in defaults: ``webhook.DefaulterHandler`` at the path for ``mutate``."""
        return self._with(_MUTATE, webhook.DefaulterHandler(self._kind, defaulter))

    def with_mutator(self, mutator: webhook.CustomMutator[T]) -> Self:
        """Change objects: ``webhook.MutatorHandler`` at the path for ``mutate``.

        Unlike a defaulter, a mutator also gets the request and the stored object.
        """
        return self._with(_MUTATE, webhook.MutatorHandler(self._kind, mutator))

    def _with(self, verb: str, handler: webhook.Handler) -> Self:
        if verb in self._handlers:
            raise ValueError(
                f"webhook for {self._kind.gvk}: a second handler to {verb} would replace the first"
            )
        self._handlers[verb] = handler
        return self

    def with_validator_custom_path(self, path: str) -> Self:
        """Serve the validator at ``path`` instead of the default path."""
        self._paths[_VALIDATE] = path
        return self

    def with_defaulter_custom_path(self, path: str) -> Self:
        """Serve the defaulter or mutator at ``path`` instead of the default path."""
        self._paths[_MUTATE] = path
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
        for verb, hook in self._handlers.items():
            gvk = self._kind.gvk  # webhook configurations name this path by default, as in Go
            path = f"/{verb}-{gvk.group.replace('.', '-')}-{gvk.version}-{gvk.kind.lower()}"
            self._mgr.webhook_server.register(self._paths.get(verb, path), hook)
        if self._spokes:
            conversions, kind = self._mgr.webhook_server.conversions, self._kind.gvk.group_kind
            conversions.register(self._kind, *self._spokes)
            known = (kind.gvk for kind in self._mgr.scheme)
            conversions.check(kind, (gvk.version for gvk in known if gvk.group_kind == kind))
