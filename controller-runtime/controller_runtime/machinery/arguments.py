# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in arguments, which would otherwise show late or never: functions, and the values of options.

A plain function in place of a coroutine function fails in each call, and a coroutine function in place of a plain
function seems to return something true. Both are found as early as possible. Nothing is known about other callables,
such as lambdas and objects with ``__call__``, so they pass.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
    "timedelta": (timedelta,),
    "None": (type(None),),
}
_AWAITABLE: Final = ("Awaitable", "Coroutine", "Future", "Task")


def name_of(function: object) -> str:
    """Return the name of a function in error messages."""
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside a method and inside decorators that use functools.wraps."""
    plain: Callable[..., Any] = inspect.unwrap(getattr(function, "__func__", function))
    return plain


def is_plain(function: Callable[..., Any]) -> bool:
    """Return True if a call certainly returns nothing to await."""
    plain = unwrapped(function)
    if not inspect.isfunction(plain) or plain.__name__ == "<lambda>":
        return False
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(plain):
        return False
    returns = str(plain.__annotations__.get("return"))
    return not any(word in returns for word in _AWAITABLE)


def must_be_async(function: Callable[..., Any]) -> None:
    """Raise TypeError for a function that is certainly not ``async``."""
    if is_plain(function):
        raise TypeError(f"{name_of(function)} must be declared with async def")


def must_have_async(owner: object, *methods: str) -> None:
    """Raise TypeError if ``owner`` is a class, or one of these methods is missing or certainly not ``async``."""
    if isinstance(owner, type):
        raise TypeError(f"{owner.__name__} is a class: pass an instance")
    for name in methods:
        method = getattr(owner, name, None)
        if not callable(method):
            raise TypeError(f"{name_of(owner)} has no method {name}")
        must_be_async(method)


def must_be_plain(function: Callable[..., Any]) -> None:
    """Raise TypeError for a coroutine function, whose result would count as true."""
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{name_of(function)} must not be async: its result is used at once")


def must_take(function: Callable[..., object], names: str) -> None:
    """Raise TypeError for a function that certainly cannot be called with these arguments, such as ``old, new``."""
    if not takes(function, *names.split(", ")):
        raise TypeError(f"{name_of(function)} must take {names}")


def takes(function: Callable[..., Any], *arguments: str) -> bool:
    """Return False if ``function`` certainly cannot be called with as many positional arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def problem_of(options: Any) -> str | None:
    """Return the first field of a dataclass whose value has a wrong type, as a sentence, or None.

    For example, a text in place of a list would count as its letters. Only fields with plain types, and collections for
    which a text is given, are checked.
    """
    for option in dataclasses.fields(options):
        words = [word.strip() for word in str(option.type).split("|")]
        value = getattr(options, option.name)
        if any(word.startswith("Collection[") for word in words):
            if isinstance(value, str):
                return f"{option.name} must be a list, such as [{value!r}], not a text"
        elif all(word in _PLAIN for word in words):
            allowed = tuple(kind for word in words for kind in _PLAIN[word])
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                return f"{option.name} must be {' or '.join(words)}, not {type(value).__name__}"
    return None
