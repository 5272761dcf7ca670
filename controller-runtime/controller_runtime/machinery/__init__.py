# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of Kubernetes' apimachinery that kinds and clients need: base classes of kinds, and a module per subject.

Helpers that several packages share are here, too: :mod:`.backoff`, :mod:`.locks`, :mod:`.lru`, :mod:`.raised`,
:mod:`.refreshed` and :mod:`.tokenbucket`.

metav1's structs are in :mod:`controller_runtime.apis.meta.v1`.
"""

import typing as _typing

from controller_runtime import _ondemand

if _typing.TYPE_CHECKING:
    from . import arguments as arguments
    from . import backoff as backoff
    from . import conditions as conditions
    from . import crd as crd
    from . import equality as equality
    from . import errors as errors
    from . import field as field
    from . import goduration as goduration
    from . import gojson as gojson
    from . import labels as labels
    from . import locks as locks
    from . import lru as lru
    from . import meta as meta
    from . import names as names
    from . import openapi as openapi
    from . import patch as patch
    from . import printable as printable
    from . import quantity as quantity
    from . import raised as raised
    from . import rawjson as rawjson
    from . import refreshed as refreshed
    from . import structural as structural
    from . import tokenbucket as tokenbucket
    from . import yaml as yaml
    from .base import JSON as JSON
    from .base import Struct as Struct
    from .base import is_unset as is_unset
    from .base import wire_name as wire_name
    from .crd.markers import Int32 as Int32
    from .crd.markers import Int64 as Int64
    from .goduration import Duration as Duration
    from .names import GVK as GVK
    from .names import GroupKind as GroupKind
    from .names import NamespacedName as NamespacedName
    from .names import Resource as Resource
    from .object import LazyObject as LazyObject
    from .object import Object as Object
    from .object import PartialObjectMetadata as PartialObjectMetadata
    from .object import Scheme as Scheme
    from .object import Unstructured as Unstructured
    from .object import metadata_only as metadata_only
    from .object import unstructured as unstructured
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            "base": (
                "JSON",
                "Struct",
                "is_unset",
                "wire_name",
            ),
            "goduration": ("Duration",),
            "crd.markers": (
                "Int32",
                "Int64",
            ),
            "names": (
                "GVK",
                "GroupKind",
                "NamespacedName",
                "Resource",
            ),
            "object": (
                "LazyObject",
                "Object",
                "PartialObjectMetadata",
                "Scheme",
                "Unstructured",
                "metadata_only",
                "unstructured",
            ),
        },
        submodules=True,
    )
