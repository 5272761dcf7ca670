# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the objects of ``-f FILE…`` with their positions. Errors can then name the file, line, document and field.

An argument is a file, a folder (its ``.yaml``, ``.yml`` and ``.json`` files) or ``-`` for standard input. In a folder,
documents that are not Kubernetes objects, such as the values of a Helm chart, are skipped with a note. The content
is YAML with any number of documents, or JSON with any number of values. Lists of any kind are split into their items.
YAML is read as kubectl reads it: times and ``12:30`` stay strings, and a duplicate key is an error.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

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
_CHART: Final = "Chart.yaml"
_GENERATORS: Final = {
    _CHART: "helm template",
    **dict.fromkeys(("kustomization.yaml", "kustomization.yml"), "kubectl kustomize"),
}
"""Files from which a program makes objects, and the command that prints these objects."""
_BETWEEN_DOCUMENTS: Final = re.compile(r"(?m)^(?=---(?:\s|$))")
_HELM: Final = re.compile(r"\{\{-?\s{0,9}(?:\.(?:Values|Release|Chart)\b|include |template )")
_MOST_NAMED: Final = 10
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
        names = [metadata.get("namespace"), metadata.get("name") or metadata.get("generateName")]
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


class Input(NamedTuple):
    """The content of the files."""

    objects: list[InputObject]
    notes: list[str]
    """Skipped subfolders, skipped documents that are not Kubernetes objects, and files that may be templates."""
    errors: list[InputError]
    """The files and documents that could not be read."""


async def load(files: Sequence[str], note: Callable[[str], None] = lambda _: None) -> list[InputObject]:
    """Return the objects in ``files``, in the order of the files, and call ``note`` for each thing that was skipped.

    Raises:
        InputError: a file cannot be read or is not valid, or the files contain no object.
    """
    return _objects_of(files, await gather(files), note)


async def gather(files: Sequence[str]) -> Input:
    """Read ``files``. If one of them cannot be read, go on with the others. A signal can interrupt the wait for
    standard input.

    Raises:
        InputError: standard input cannot be read, or a file name is empty.
    """
    if files.count(STANDARD_INPUT) > 1:
        raise InputError("standard input can be read only once")
    if STANDARD_INPUT in files and sys.stdin is None:
        raise InputError("standard input is closed")
    return _gathered(files, await _drain(sys.stdin.buffer) if STANDARD_INPUT in files else b"")


def read(files: Sequence[str], *, stdin: bytes = b"") -> list[InputObject]:
    """Do the same as :func:`load`, without an event loop.

    Raises:
        InputError: a file cannot be read or is not valid, or the files contain no object.
    """
    return _objects_of(files, _gathered(files, stdin), lambda _: None)


def _objects_of(files: Sequence[str], found: Input, note: Callable[[str], None]) -> list[InputObject]:
    for each in found.notes:
        note(each)
    if found.errors:
        raise InputError("\n".join(map(str, found.errors)))
    if not found.objects:
        raise nothing_in(files)
    return found.objects


def nothing_in(files: Sequence[str]) -> InputError:
    """Return the error about files that contain no object."""
    named = ", ".join("standard input" if name == STANDARD_INPUT else name for name in files)
    return InputError(f"{named}: contains no Kubernetes objects")


def _gathered(files: Sequence[str], stdin: bytes) -> Input:
    found = Input([], [], [])
    for name in files:
        if name == STANDARD_INPUT:
            _read_text(found, "standard input", stdin, in_folder=False)
            continue
        if not name:
            raise InputError("a file name is empty")
        path = Path(name)
        try:
            in_folder = path.is_dir()
            paths = _files_of(path, found.notes) if in_folder else [path]
        except OSError as error:
            found.errors.append(InputError(f"{path}: {error.strerror or error}"))
            continue
        for each in paths:
            try:
                content = each.read_bytes()
            except OSError as error:
                found.errors.append(InputError(f"{each}: {error.strerror or error}"))
            else:
                _read_text(found, str(each), content, in_folder=in_folder)
    return found


def _files_of(folder: Path, notes: list[str]) -> list[Path]:
    """Return the files of a folder that are read, and add a note if it has subfolders.

    Broken links count as files. The attempt to read one then reports an error.
    """
    files, subfolders = [], []
    for each in sorted(folder.iterdir()):
        if each.is_dir():
            subfolders += [] if each.name.startswith(".") else [each.name]
        elif each.suffix in _SUFFIXES and (each.is_file() or each.is_symlink()):
            files.append(each)
    if subfolders:
        listed = printable_line(", ".join(subfolders[:_MOST_NAMED]))
        more = f" and {len(subfolders) - _MOST_NAMED} more" if len(subfolders) > _MOST_NAMED else ""
        notes.append(f"{folder}: subfolders are not read: {listed}{more}; give each folder with -f")
    return files


def _read_text(found: Input, source: str, content: bytes, *, in_folder: bool) -> None:
    """Add the objects, notes and errors of one file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        problem = "UTF-16 text: save the file as UTF-8" if utf16 else "not UTF-8 text"
        found.errors.append(InputError(f"{source}: {problem}"))
        return
    documents, text, errors = _parsed(source, text)
    found.errors.extend(errors)
    if not errors and _HELM.search(text):
        found.notes.append(
            f"{source}: this looks like a template: give the output of `helm template` instead"
        )
    others = []
    for number, data in documents:
        if in_folder and not _is_like_an_object(data, Path(source).name):
            others.append(str(number))
        else:
            _add_objects(found, InputObject(data, source, number, (), text))
    if others:
        which = "" if len(others) == len(documents) else f"document {', '.join(others[:_MOST_NAMED])}: "
        generator = _GENERATORS.get(Path(source).name)
        hint = (
            f"; give the output of `{generator} {Path(source).parent}` on standard input" if generator else ""
        )
        found.notes.append(f"{source}: {which}not a Kubernetes object, skipped{hint}")


def _is_like_an_object(data: JSON, file: str) -> bool:
    """Return True if a document of a folder is meant to be an object, even if something is missing in it."""
    if isinstance(data, list):
        return any(_is_like_an_object(item, file) for item in data)
    if not isinstance(data, dict) or file == _CHART:
        return False
    return any(key in data for key in ("apiVersion", "kind", "metadata", "spec"))


def _parsed(source: str, text: str) -> tuple[list[tuple[int, JSON]], str, list[InputError]]:
    """Parse a file. Return its documents with their numbers, the text to look up lines in, and the errors.

    If YAML is not valid, its documents are parsed one by one. In the returned text, the invalid ones are empty.
    """
    is_json = source.endswith(".json")
    try:
        return list(yaml.load_all(text, is_json=is_json)), text, []
    except yaml.YAMLError as error:
        first = _parse_error(source, error, 0, text)
    if is_json:
        return [], text, [first]
    parts, errors, line = _BETWEEN_DOCUMENTS.split(text), [], 0
    for index, part in enumerate(parts):
        try:
            deque(yaml.load_all(part), maxlen=0)
        except yaml.YAMLError as error:
            errors.append(_parse_error(source, error, line, part))
            parts[index] = "---" + "\n" * part.count("\n")
        line += part.count("\n")
    try:
        documents = list(yaml.load_all(text := "".join(parts)))
    except yaml.YAMLError:
        return [], text, [first]
    if not errors:  # only all documents together exceed a limit
        return [], text, [first]
    cut = errors[_MOST_NAMED:]
    return (
        documents,
        text,
        [*errors[:_MOST_NAMED], *([InputError(f"{source}: {len(cut)} more")] if cut else [])],
    )


def _parse_error(source: str, error: yaml.YAMLError, lines_before: int, text: str) -> InputError:
    where = f"{source}:{error.line + lines_before}" if error.line else source
    hint = "; this looks like a template: give the output of `helm template` instead" if "{{" in text else ""
    return InputError(f"{where}: {error.message}{hint}")


def _add_objects(found: Input, each: InputObject) -> None:
    """Add the object, or its items if it is a list.

    If an object is not a map, or its ``apiVersion``, ``kind`` or ``metadata`` is not valid, add an error.
    """
    data: JSON = each.data
    where = f"document {each.number}"
    if each.inside:
        where += f", {render_path(each.inside)}"
    if isinstance(data, list):
        for index, item in enumerate(data):
            _add_objects(found, replace(each, data=item, inside=(*each.inside, index)))
        return
    if not isinstance(data, dict):
        found.errors.append(InputError(f"{each.source}: {where}: a map is expected"))
        return
    if missing := [
        key for key in ("apiVersion", "kind") if not isinstance(data.get(key), str) or not data[key]
    ]:
        line = yaml.line_of(each.text, each.number, each.inside)
        at = f"{each.source}:{line}" if line else each.source
        verb = "are missing or not strings" if len(missing) > 1 else "is missing or not a string"
        found.errors.append(InputError(f"{at}: {where}: {' and '.join(missing)} {verb}"))
        return
    try:
        GVK.parse(data["apiVersion"], data["kind"])
    except ValueError:
        problem = f"GROUP/VERSION or VERSION is expected, not {_shown(data['apiVersion'])}"
        found.errors.append(_nameable(each).error(("apiVersion",), problem))
        return
    items = data.get("items")
    if data["kind"].endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict) and data["kind"] != "List":
                # The API server omits apiVersion and kind in the items of a typed list.
                kind = data["kind"].removesuffix("List")
                item = {"apiVersion": data["apiVersion"], "kind": kind, **item}
            _add_objects(found, replace(each, data=item, inside=(*each.inside, "items", index)))
    elif not isinstance(data.get("metadata"), dict | None):
        found.errors.append(_nameable(each).error(("metadata",), "a map is expected"))
    else:
        found.objects.append(each)


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
