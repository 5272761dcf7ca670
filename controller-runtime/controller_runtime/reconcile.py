# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The contract between a controller and the code that does its work: a key in, a result or an error out.

A request names an object. The request says neither which events caused it nor how many there were. The reconciler reads
the current state, compares it with the desired state of the object, and moves the current state towards the desired
one. A second call for the same state changes nothing.

ControllerError             a controller failed
├── TerminalError           a retry of this object would fail in the same way
├── ReconcileTimeoutError   a reconcile took longer than its controller allows
└── PanicError              a reconciler raised a programming error (see the controller)
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar, get_args

from controller_runtime.client.interfaces import Reader
from controller_runtime.machinery import NamespacedName, Object, arguments, raised
from controller_runtime.machinery.errors import NotFoundError

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)


class ControllerError(Exception):
    """The base class of the errors that controllers raise."""


class TerminalError(ControllerError, raised.WrapperError):
    """Raise this error ``from`` its cause when a retry is pointless: the error is logged and counted, and the request
    is not retried.

    The object is reconciled again at the next event, e.g. when the object itself or an object that it owns changes.
    """


class ReconcileTimeoutError(ControllerError, raised.ExpectedError):
    """A reconcile was cancelled after its controller's ``reconciliation_timeout``; the request is retried as after any
    other error.
    """


class PanicError(ControllerError):
    """Reports a programming error from which a controller recovered; ``__cause__`` is the original error."""


class Request(NamespacedName):
    """The object to reconcile: ``namespace`` (empty for cluster-scoped kinds) and ``name``."""

    __slots__ = ()

    @classmethod
    def for_object(cls, obj: Object) -> Request:
        """Return the request that names ``obj``."""
        return cls(obj.namespace, obj.name)


@dataclass(frozen=True, slots=True, init=False)
class Result:
    """The outcome of a reconcile that did not fail."""

    requeue_after: timedelta | None
    """Reconcile again after this delay, or earlier if an event arrives."""
    priority: int | None
    """The priority of that next reconcile; None keeps the current priority."""

    def __init__(self, requeue_after: timedelta | float | None = None, priority: int | None = None) -> None:
        """Make a result; ``requeue_after`` as a number means seconds.

        Raises:
            TypeError: ``requeue_after`` is not a duration or a number, or ``priority`` is not an integer.
            ValueError: ``requeue_after`` is not a number (NaN).
            OverflowError: ``requeue_after`` is longer than a timedelta can be.
        """
        if requeue_after is not None and not isinstance(requeue_after, timedelta):
            if isinstance(requeue_after, bool) or not isinstance(requeue_after, int | float):
                given = type(requeue_after).__name__
                raise TypeError(f"requeue_after must be a timedelta or a number of seconds, not {given}")
            requeue_after = timedelta(seconds=requeue_after)
        if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
            raise TypeError(f"priority must be an integer, not {type(priority).__name__}")
        object.__setattr__(self, "requeue_after", requeue_after)
        object.__setattr__(self, "priority", priority)


class Reconciler(Protocol):
    """Moves the current state towards the desired state of one object."""

    async def reconcile(self, request: Request) -> Result:
        """Reconcile the object that ``request`` names. The object may have been deleted.

        The controller handles the outcome:

        - an error was raised: the error is logged once and counted, and the request is tried again, after a delay that
          grows with each failure; ``SystemExit`` and the ``CancelledError`` of a cancelled future are such errors, too;
        - :class:`TerminalError` was raised: the error is logged and counted, and the request is not tried again;
        - ``Result(requeue_after=d)``: the request is tried again after ``d``, a timedelta or a number of seconds, and
          its failures are forgotten;
        - ``Result()``: the request is done, and its failures are forgotten.

        This method is never called for the same request twice at the same time. A call is cancelled after
        ``reconciliation_timeout``. It is also cancelled when the grace period of a stopping manager ends, and
        immediately when leadership is lost.
        """


_NAMES_OF_NO_RESULTS: Final = frozenset({"bool", "int", "float", "str", "dict", "list", "tuple", "timedelta"})


def _may_be_none(returns: object) -> bool:
    """Return True for ``Result | None`` and ``Optional[Result]``, also as a text."""
    if isinstance(returns, str):
        return returns.startswith("Optional[") or "None" in (part.strip() for part in returns.split("|"))
    return type(None) in get_args(returns)


def check(reconciler: object) -> None:
    """Find mistakes that would otherwise make every reconcile fail.

    Raises:
        ControllerError: ``reconciler`` is a class or has no method ``reconcile``, or the method is not ``async`` or
            returns nothing.
    """
    if isinstance(reconciler, type):
        raise ControllerError(f"{reconciler.__name__} is a class: pass an instance")
    if isinstance(reconciler, Func | AsReconciler):
        return  # checked when it was made
    method = getattr(reconciler, "reconcile", None)
    if not callable(method):
        hint = "; use reconcile.Func(…)" if callable(reconciler) else ""
        raise ControllerError(f"{type(reconciler).__name__} has no method reconcile{hint}")
    _check_function(method, f"{type(reconciler).__name__}.reconcile")


def _check_function(function: Callable[..., object], name: str) -> None:
    if inspect.isasyncgenfunction(arguments.unwrapped(function)):
        raise ControllerError(f"{name} yields; it must return a Result")
    if arguments.is_plain(function):
        raise ControllerError(f"{name} must be declared with async def")
    if not arguments.takes(function, "request"):
        raise ControllerError(f"{name} must take one argument, the request")
    plain = arguments.unwrapped(function)
    if not inspect.isfunction(plain) or not inspect.iscoroutinefunction(plain):
        return  # nothing is known about other callables
    returns = plain.__annotations__.get("return", inspect.Signature.empty)
    if returns in (None, "None") or (returns is inspect.Signature.empty and _returns_nothing(plain)):
        raise ControllerError(f"{name} returns nothing; it must return a Result")
    if returns is inspect.Signature.empty:
        return  # nothing is known
    other = isinstance(returns, type) and not (issubclass(returns, Result) or issubclass(Result, returns))
    generic = str(returns).partition("[")[0]  # of tuple[Result, Exception], as in Go
    if other or generic in _NAMES_OF_NO_RESULTS or _may_be_none(returns):
        shown = returns.__name__ if isinstance(returns, type) else returns
        raise ControllerError(f"{name} returns {shown}; it must return a Result")


def _returns_nothing(function: Callable[..., object]) -> bool:
    """Return True if the source of ``function`` neither returns a value nor raises an error."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # the source is not known
        return False
    left: list[ast.AST] = [*tree.body[0].body] if isinstance(tree.body[0], ast.AsyncFunctionDef) else []
    while left:
        node = left.pop()
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value is not None):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return True


class Func:
    """A function that serves as a reconciler: ``Func(fn)``."""

    def __init__(self, fn: Callable[[Request], Awaitable[Result]]) -> None:
        """Raises ControllerError if ``fn`` is not ``async`` or returns nothing."""
        _check_function(fn, getattr(fn, "__qualname__", type(fn).__name__))
        self._fn = fn

    async def reconcile(self, request: Request) -> Result:
        """Call the function."""
        return await self._fn(request)


class ObjectReconciler(Protocol[T_contra]):
    """Reconciles an object that is read before each call."""

    async def reconcile(self, obj: T_contra) -> Result:
        """Reconcile ``obj``, a copy that this method may change; the outcomes are those of
        :meth:`Reconciler.reconcile`.
        """


class AsReconciler(Generic[T]):
    """Reads the object that a request names and passes the object to an ObjectReconciler. If the object does not exist,
    the request is done.
    """

    def __init__(self, client: Reader, kind: type[T], reconciler: ObjectReconciler[T]) -> None:
        """Raises ControllerError if ``reconciler`` has no valid method ``reconcile``."""
        check(reconciler)
        self._client = client
        self._kind = kind
        self._reconciler = reconciler

    async def reconcile(self, request: Request) -> Result:
        """Read, then reconcile."""
        try:
            obj = await self._client.get(self._kind, request)
        except NotFoundError as error:
            if not error.names_object:
                raise
            return Result()
        return await self._reconciler.reconcile(obj)
