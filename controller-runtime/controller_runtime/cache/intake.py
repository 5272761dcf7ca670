# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Intake: what the objects of lists and the lines of watches say, reported to a sink."""

from __future__ import annotations

from typing import Protocol

import msgspec

from controller_runtime.machinery import NamespacedName, shape

from . import codec, errors


class Sink(Protocol):
    """Receives the results of a reflector. Calls return at once, except the last of many."""

    def connected(self) -> None:
        """The server has accepted a list or a watch."""

    def begin(self) -> None:
        """Everything there is will follow."""

    def apply(self, entry: codec.Entry) -> None:
        """An object exists, and looks like this."""

    def seen(self, key: NamespacedName) -> None:
        """An object exists, but its content cannot be decoded."""

    async def finish(self, resource_version: str) -> None:
        """Every existing object has been reported, as of that version."""

    def delete(self, entry: codec.Entry) -> None:
        """An object is deleted; this was its last state."""

    def lost(self, key: NamespacedName) -> None:
        """An object is deleted, and its last state cannot be read."""

    def reached(self, resource_version: str) -> None:
        """Every change up to here has been reported."""

    def skip(self, error: errors.BadObjectError) -> None:
        """Something could not be read."""

    def failed(self, error: Exception, *, denied: bool) -> None:
        """The last step failed; ``denied`` when the server refuses this kind as such."""


class Intake:
    """Reports each object and each line to ``sink``; an object that cannot be read does not end the watch."""

    def __init__(self, sink: Sink, transform: codec.Transform | None, limits: shape.Limits) -> None:
        self.known = ""
        """The resourceVersion that a watch resumes from."""
        self.has_bookmarks = False
        """Whether the server sends bookmarks to watches."""
        self._sink = sink
        self._transform = transform
        self._limits = limits

    def take_line(self, line: bytes, *, initial: bool) -> bool:
        """Pass on a watch line; return True if it ends the initial events."""
        try:
            event = codec.split_line(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    version = self.take_object(event.object)
                case "DELETED":
                    version = self._take_deletion(event.object)
                case "BOOKMARK":
                    return self._take_bookmark(codec.bookmark_of(event.object), initial=initial)
                case "ERROR":
                    raise codec.error_of(event.object)
                case other:
                    self._sink.skip(errors.BadObjectError(f"a watch line of unknown type {other!r}"))
                    return False
        except errors.BadObjectError as error:
            self._sink.skip(error)
            return False
        if not initial:
            # Initial events have no order: a watch cannot resume from their versions.
            self.known = version or self.known
        return False

    def _take_bookmark(self, bookmark: codec.Bookmark, *, initial: bool) -> bool:
        if initial and not bookmark.ends_initial_events:
            return False
        self.known = bookmark.resource_version or self.known
        if not initial:
            # A server that sends one sends them every minute: from now on silence means something.
            self.has_bookmarks = True
            self._sink.reached(self.known)
        return initial

    def _take_deletion(self, raw: msgspec.Raw) -> str:
        """Pass the end of an object on, even if only its name can be read; return its resourceVersion."""
        try:
            gone = codec.entry_of(raw, self._transform, self._limits)
        except errors.BadObjectError as error:
            if error.key is not None:
                self._sink.lost(error.key)
            self._sink.skip(error)
            return ""
        self._sink.delete(gone)
        return gone.resource_version

    def take_object(self, raw: msgspec.Raw) -> str:
        """Pass an object on; return its resourceVersion, or nothing when it is undecodable."""
        try:
            entry = codec.entry_of(raw, self._transform, self._limits)
        except errors.BadObjectError as error:
            if error.key is not None:
                self._sink.seen(error.key)
            self._sink.skip(error)
            return ""
        self._sink.apply(entry)
        return entry.resource_version
