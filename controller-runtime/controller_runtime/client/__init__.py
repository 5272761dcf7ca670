# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that read and write objects: live or through a cache.

The module :mod:`.interceptor`, for tests, is imported on first use.
"""

import typing as _typing

from controller_runtime import _ondemand
from controller_runtime.machinery import patch as _patch
from controller_runtime.machinery.object import check_kind as check_kind
from controller_runtime.machinery.object import check_object as check_object
from controller_runtime.machinery.patch import check_patch as check_patch
from controller_runtime.machinery.patch import merge_from as merge_from
from controller_runtime.machinery.patch import raw_patch as raw_patch
from controller_runtime.machinery.patch import strategic_merge_from as strategic_merge_from
from controller_runtime.rest.request import ApplyOptions as ApplyOptions
from controller_runtime.rest.request import CreateOptions as CreateOptions
from controller_runtime.rest.request import DeleteAllOfOptions as DeleteAllOfOptions
from controller_runtime.rest.request import DeleteOptions as DeleteOptions
from controller_runtime.rest.request import FieldValidation as FieldValidation
from controller_runtime.rest.request import LabelSelectorLike as LabelSelectorLike
from controller_runtime.rest.request import ListOptions as ListOptions
from controller_runtime.rest.request import LogOptions as LogOptions
from controller_runtime.rest.request import PatchOptions as PatchOptions
from controller_runtime.rest.request import Propagation as Propagation
from controller_runtime.rest.request import UpdateOptions as UpdateOptions
from controller_runtime.rest.request import WatchOptions as WatchOptions
from controller_runtime.rest.request import check_options as check_options

from .cached import Backend as Backend
from .cached import CachedClient as CachedClient
from .cached import CacheReader as CacheReader
from .cached import ReadThrough as ReadThrough
from .interfaces import Client as Client
from .interfaces import FieldIndexer as FieldIndexer
from .interfaces import IndexerFunc as IndexerFunc
from .interfaces import LogClient as LogClient
from .interfaces import ObjectList as ObjectList
from .interfaces import Patch as Patch
from .interfaces import Reader as Reader
from .interfaces import ReaderWriter as ReaderWriter
from .interfaces import ScaleClient as ScaleClient
from .interfaces import StatusClient as StatusClient
from .interfaces import SubResourceClient as SubResourceClient
from .interfaces import Watcher as Watcher
from .interfaces import WatchEvent as WatchEvent
from .interfaces import Writer as Writer
from .interfaces import apply_lazily as apply_lazily
from .interfaces import patch_lazily as patch_lazily
from .interfaces import peek as peek
from .live import LiveClient as LiveClient
from .retry import retry_on_conflict as retry_on_conflict
from .watching import Watch as Watch
from .wrappers import dry_run as dry_run
from .wrappers import ignore_not_found as ignore_not_found
from .wrappers import namespaced as namespaced
from .wrappers import read_only as read_only
from .wrappers import with_field_owner as with_field_owner
from .wrappers import with_field_validation as with_field_validation

APPLY: _typing.Final = _patch.APPLY_PATCH
JSON: _typing.Final = _patch.JSON_PATCH
MERGE: _typing.Final = _patch.MERGE_PATCH
STRATEGIC: _typing.Final = _patch.STRATEGIC_MERGE_PATCH

if _typing.TYPE_CHECKING:
    from . import interceptor as interceptor
else:
    __getattr__, __dir__ = _ondemand.names(__name__, {}, submodules=True)
