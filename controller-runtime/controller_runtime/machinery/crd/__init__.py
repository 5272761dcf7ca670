# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions: the markers that a kind declares, and the definition that is generated from a kind.

The generator is loaded when it is first used: a program that only declares kinds does not need it.
"""

import typing as _typing

from controller_runtime import _ondemand

from .markers import ATOMIC as ATOMIC
from .markers import MAP_BY_NAME as MAP_BY_NAME
from .markers import MAP_BY_TYPE as MAP_BY_TYPE
from .markers import ConversionWebhook as ConversionWebhook
from .markers import KindMarkers as KindMarkers
from .markers import Markers as Markers
from .markers import PrinterColumn as PrinterColumn
from .markers import Rule as Rule
from .markers import Scale as Scale

if _typing.TYPE_CHECKING:
    from .generate import custom_resource_definition as custom_resource_definition
    from .generate import merge_schema as merge_schema
    from .generate import unreadable_in_go as unreadable_in_go
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__, {"generate": ("custom_resource_definition", "merge_schema", "unreadable_in_go")}
    )
