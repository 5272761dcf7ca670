# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Loads the Configuration: reads the file, decodes it strictly, sets defaults and validates the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic_core
from controller_runtime import log
from controller_runtime.machinery import JSON, Struct, wire_name, yaml

from pkg.apis.config import v1alpha1 as config
from pkg.apis.config.v1alpha1 import Configuration

from . import validation

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_log: Final = log.logger_from("config")
_TYPES: Final = {
    "bool_type": "true or false is expected",
    "int_type": "a whole number is expected",
    "int_from_float": "a whole number is expected",
    "float_type": "a number is expected",
    "string_type": "a string is expected",
    "dict_type": "a map is expected",
    "model_type": "a map is expected",
    "list_type": "a list is expected",
}

RETIRED: Final[tuple[yaml.PathSteps, ...]] = (
    ("mirror",),
    ("podGrouper", "grouperFiles"),
    ("podGrouper", "groupersConfigMap"),
    ("statusServer", "host"),
)
"""Removed settings. For one release, a stored Configuration may still contain these settings."""


class ConfigurationError(Exception):
    """The Configuration is unusable. The text is one line with the file and, if known, the line and the key."""


def load(path: str | None = None, warn: Callable[[str], object] | None = None) -> Configuration:
    """Return the Configuration in the file ``path`` or, if no path is given, the default Configuration.

    For each setting that no longer has an effect, ``warn`` is called with a line of text. By default, the line is
    logged.

    Raises:
        ConfigurationError: the file cannot be read, or does not hold a valid Configuration.
    """
    if not path:
        return config.defaulted()
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    loaded = _decode(path, text, warn or _log.warning)
    config.set_defaults(loaded)
    if errors := validation.validate(loaded):
        raise ConfigurationError(f"{path}: invalid configuration: {'; '.join(map(str, errors))}")
    return loaded


def _decode(path: str, text: bytes, warn: Callable[[str], object]) -> Configuration:
    try:
        data = yaml.load_map(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    _check_kind(path, text, data)
    for steps in _drop_retired(data):
        where = f"{path}: line {yaml.line_of(text, 1, steps)}: {yaml.render_path(steps)}"
        warn(f"{where}: no longer has an effect, and will be an error in the next release: remove it")
    try:
        loaded = Configuration.from_dict(data)
    except pydantic_core.ValidationError as error:
        problems = [(tuple(each["loc"]), _explain(each)) for each in error.errors(include_url=False)]
        raise _error(path, text, problems) from error
    if unknown := [(steps, "unknown key") for steps in _unknown(loaded, ())]:
        raise _error(path, text, unknown)
    return loaded


def _check_kind(path: str, text: bytes, data: dict[str, JSON]) -> None:
    for key, expected in (("apiVersion", Configuration.gvk.api_version), ("kind", Configuration.gvk.kind)):
        found = data.get(key)
        if found is None:
            raise ConfigurationError(f"{path}: {key} is missing; {expected} is expected")
        if found != expected:
            raise _error(path, text, [((key,), f"{found!r} is not supported; {expected} is expected")])


def _error(path: str, text: bytes, problems: list[tuple[yaml.PathSteps, str]]) -> ConfigurationError:
    described = []
    for steps, problem in problems:
        line = yaml.line_of(text, 1, steps)
        where = f"line {line}: " if line else ""
        described.append(f"{where}{yaml.render_path(steps)}: {problem}")
    return ConfigurationError(f"{path}: {'; '.join(dict.fromkeys(described))}")


def _explain(error: ErrorDetails) -> str:
    if error["type"] == "string_type" and not isinstance(error["input"], dict | list):
        return "a string is expected; put it in quotes"
    return _TYPES.get(error["type"], error["msg"])


def _drop_retired(data: dict[str, JSON]) -> Iterator[yaml.PathSteps]:
    """Remove the settings that no longer have an effect, and yield their paths."""
    for steps in RETIRED:
        *above, last = steps
        held: JSON = data
        for step in above:
            held = held.get(step) if isinstance(held, dict) else None
        if isinstance(held, dict) and last in held:
            del held[last]
            yield steps


def _unknown(struct: Struct, above: yaml.PathSteps) -> Iterator[yaml.PathSteps]:
    """Yield the paths of all unknown keys."""
    for key in struct.unknown_fields:
        yield (*above, key)
    for name, info in type(struct).model_fields.items():
        value = getattr(struct, name)
        if isinstance(value, Struct):
            yield from _unknown(value, (*above, wire_name(name, info)))
