# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Stubs of a manager and of a controller builder, which record what is registered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller_runtime import handler, source
from controller_runtime.controller import Controller
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object


class StubManager(SimpleNamespace):
    """A manager with the attributes that builders use, and ``more``; ``runnables`` has what was added to it."""

    def __init__(self, **more: Any) -> None:
        super().__init__(
            client=FakeClient(),
            api_reader=FakeClient(),
            cache=None,
            controller_names=set(),
            sources=[],
            runnables=[],
        )
        self.controller_options = SimpleNamespace(
            group_kind_concurrency={},
            max_concurrent_reconciles=1,
            cache_sync_timeout=120.0,
            recover_panic=True,
            need_leader_election=True,
            enable_warmup=True,
            reconciliation_timeout=None,
            skip_name_validation=False,
        )
        self.__dict__.update(more)

    @property
    def controllers(self) -> list[Controller]:
        return [each for each in self.runnables if isinstance(each, Controller)]

    def add(self, runnable: Any) -> None:
        self.runnables.append(runnable)

    def add_readyz_check(self, name: str, check: Any) -> None:
        assert check() is None, name

    def event_recorder_for(self, source: str) -> None:
        self.sources.append(source)


class RecordedBuilder:
    """A controller builder that records the handlers and options of its watches, and its sources."""

    def __init__(self) -> None:
        self.handlers: dict[type[Object], handler.EventHandler[Any]] = {}
        self.options: dict[type[Object], dict[str, Any]] = {}
        self.sources: list[source.Source] = []

    def watches(
        self, kind: type[Object], handle: handler.EventHandler[Any], **options: Any
    ) -> RecordedBuilder:
        self.handlers[kind], self.options[kind] = handle, options
        return self

    def watches_raw_source(self, src: source.Source) -> RecordedBuilder:
        self.sources.append(src)
        return self
