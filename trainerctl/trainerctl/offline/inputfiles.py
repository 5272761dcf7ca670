# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the objects of ``-f FILE…`` with their positions. Errors can then name the file, line, document and field.

An argument is a file, a folder (its ``.yaml``, ``.yml`` and ``.json`` files) or ``-`` for standard input. The content
is YAML with any number of documents, or JSON with any number of values. Lists of any kind are split into their items.
YAML is read as kubectl reads it: times and ``12:30`` stay strings, and a duplicate key is an error.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import anyio
import pydantic_core
from controller_runtime.machinery import GVK, JSON, Object, yaml
from controller_runtime.machinery.printable import printable_line
from controller_runtime.machinery.yaml import PathSteps, render_path

T = TypeVar("T", bound=Object)

DEFAULT_NAMESPACE: Final = "default"
STANDARD_INPUT: Final = "-"
BAD_INPUT: Final = 2
"""The exit code of a command whose input cannot be read or is not valid."""

_SUFFIXES: Final = (".json", ".yaml", ".yml")
_EXPECTED: Final = {
    "bool_type": "true or false is expected",
    "dict_type": "a map is expected",
    "float_type": "a number is expected",
    "int_type": "a whole number is expected",
    "list_type": "a list is expected",
    "model_type": "a map is expected",
    "string_type": "a string is expected",
}


class InputError(ValueError):
    """The input is not valid. The text names the file, line, document and field, as far as they are known."""


@dataclass(frozen=True, slots=True)
class InputObject:
    """One object of the input. Its data is a map with ``apiVersion`` and ``kind``."""

    data: dict[str, JSON]
    source: str
    """The file, or ``standard input``."""
    number: int
    """The number of the document in its file, from one."""
    inside: PathSteps = ()
    """The path of the object in its document, such as ``("items", 2)`` for an item of a list."""
    text: str = field(default="", repr=False, compare=False)

    @property
    def gvk(self) -> GVK:
        """Group, version and kind, as written."""
        return GVK.parse(self.data["apiVersion"], self.data["kind"])

    @property
    def name(self) -> str:
        """Kind, namespace and name in one line, such as ``TrainJob team-a/llama``."""
        metadata = self.data.get("metadata") or {}
        names = [metadata.get("namespace"), metadata.get("name")]
        return printable_line(
            " ".join([self.data["kind"], "/".join(str(name) for name in names if name)]).strip()
        )

    def error(self, path: Iterable[str | int], problem: str) -> InputError:
        """Return an error about ``path`` in this object."""
        steps = tuple(path)
        line = self.line(steps)
        where = f"{self.source}:{line}" if line else self.source
        place = f"document {self.number}"
        if self.inside:
            place += f", {render_path(self.inside)}"
        text = f"{render_path(steps)}: {problem}" if steps else problem
        return InputError(f"{where}: {place} ({self.name}): {text}")

    def line(self, path: Iterable[str | int]) -> int | None:
        """Return the line of ``path`` in the file, or of the nearest field above it; None if it is not known."""
        return yaml.line_of(self.text, self.number, (*self.inside, *path)) or None

    def decode(self, kind: type[T]) -> T:
        """Decode the object as an object of the class ``kind``.

        Raises:
            InputError: a field has a JSON type that the kind does not permit.
        """
        try:
            return kind.from_dict(self.data)
        except pydantic_core.ValidationError as error:
            path, problem = _first_problem(error, self.data)
            raise self.error(path, problem) from error


async def load(files: Sequence[str]) -> list[InputObject]:
    """Do the same as :func:`read`, and also read standard input. A signal can interrupt the wait for it.

    Raises:
        InputError: standard input cannot be read, or :func:`read` raises it.
    """
    if files.count(STANDARD_INPUT) > 1:
        raise InputError("standard input can be read only once")
    if STANDARD_INPUT in files and sys.stdin is None:
        raise InputError("standard input is closed")
    stdin = await _drain(sys.stdin.buffer) if STANDARD_INPUT in files else b""
    return read(files, stdin=stdin)


def read(files: Sequence[str], *, stdin: bytes = b"") -> list[InputObject]:
    """Return the objects in ``files``, in the order of the files.

    Raises:
        InputError: a file cannot be read or is not valid, or the files contain no object.
    """
    found = [document for source, text in _texts(files, stdin) for document in _documents(source, text)]
    if not found:
        named = ", ".join("standard input" if name == STANDARD_INPUT else name for name in files)
        raise InputError(f"{named}: contains no Kubernetes objects")
    return found


def _texts(files: Sequence[str], stdin: bytes) -> Iterator[tuple[str, str]]:
    for name in files:
        if name == STANDARD_INPUT:
            yield "standard input", _text("standard input", stdin)
            continue
        if not name:
            raise InputError("a file name is empty")
        for path in _paths(Path(name)):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise InputError(f"{path}: {error.strerror or error}") from error
            yield str(path), _text(str(path), content)


def _paths(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        return sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and _is_read(each))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _is_read(path: Path) -> bool:
    """Return True for files and for broken links. The attempt to read a broken link then reports an error."""
    return path.is_file() or (path.is_symlink() and not path.exists())


def _text(source: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 text") from error


def _documents(source: str, text: str) -> Iterator[InputObject]:
    try:
        for number, data in yaml.load_all(text, is_json=source.endswith(".json")):
            yield from _objects(InputObject(data, source, number, (), text))
    except yaml.YAMLError as error:
        where = f"{source}:{error.line}" if error.line else source
        raise InputError(f"{where}: {error.message}") from error


def _objects(found: InputObject) -> Iterator[InputObject]:
    """Yield the object, or its items if it is a list.

    Raises:
        InputError: an object is not a map, or its ``apiVersion``, ``kind`` or ``metadata`` is not valid.
    """
    data: JSON = found.data
    where = f"document {found.number}"
    if found.inside:
        where += f", {render_path(found.inside)}"
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _objects(
                InputObject(item, found.source, found.number, (*found.inside, index), found.text)
            )
        return
    if not isinstance(data, dict):
        raise InputError(f"{found.source}: {where}: a map is expected")
    for key in ("apiVersion", "kind"):
        if not isinstance(data.get(key), str) or not data[key]:
            line = yaml.line_of(found.text, found.number, found.inside)
            at = f"{found.source}:{line}" if line else found.source
            raise InputError(f"{at}: {where}: {key} is missing or not a string")
    try:
        GVK.parse(data["apiVersion"], data["kind"])
    except ValueError as error:
        problem = f"GROUP/VERSION or VERSION is expected, not {_shown(data['apiVersion'])}"
        raise _nameable(found).error(("apiVersion",), problem) from error
    items = data.get("items")
    if data["kind"].endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict) and data["kind"] != "List":
                # The API server omits apiVersion and kind in the items of a typed list.
                kind = data["kind"].removesuffix("List")
                item = {"apiVersion": data["apiVersion"], "kind": kind, **item}
            inside = (*found.inside, "items", index)
            yield from _objects(InputObject(item, found.source, found.number, inside, found.text))
        return
    if not isinstance(data.get("metadata"), dict | None):
        raise _nameable(found).error(("metadata",), "a map is expected")
    yield found


def _nameable(found: InputObject) -> InputObject:
    """Remove metadata of a wrong type, so that the name of the object can be used in an error."""
    metadata = found.data.get("metadata")
    return replace(found, data={**found.data, "metadata": metadata if isinstance(metadata, dict) else None})


def _shown(value: object) -> str:
    """Return a short form of a value for an error."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _first_problem(error: pydantic_core.ValidationError, data: JSON) -> tuple[PathSteps, str]:
    """Return the path and text of the first problem, without the steps that pydantic adds to the path for unions."""
    first = error.errors(include_url=False)[0]
    path: list[str | int] = []
    held = data
    for step in first["loc"]:
        inside = held[step] if isinstance(held, dict) and step in held else None
        if isinstance(held, list) and isinstance(step, int) and step < len(held):
            inside = held[step]
        if inside is None and not isinstance(held, dict):
            break
        path.append(step)
        held = inside
    problems = {
        each["type"] for each in error.errors(include_url=False) if each["loc"][: len(path)] == tuple(path)
    }
    if {"int_type", "string_type"} <= problems:
        return tuple(path), f"a whole number or a string is expected, not {_shown(first['input'])}"
    problem = _EXPECTED.get(first["type"], str(first["msg"]).removeprefix("Value error, "))
    return tuple(path), f"{problem}, not {_shown(first['input'])}"


async def _drain(stream: BinaryIO) -> bytes:
    """Read the stream to its end in a daemon thread. The process can then exit while the thread waits for input.

    Raises:
        InputError: the stream cannot be read.
    """
    done = anyio.Event()
    loop = anyio.lowlevel.current_token()
    read: list[bytes | Exception] = []

    def work() -> None:
        try:
            read.append(stream.read())
        except (OSError, ValueError) as error:
            read.append(error)
        anyio.from_thread.run_sync(done.set, token=loop)

    threading.Thread(target=work, daemon=True, name="standard-input").start()
    await done.wait()
    (content,) = read
    if isinstance(content, Exception):
        raise InputError(f"standard input: {content}") from content
    return content
