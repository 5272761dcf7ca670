# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Integers that have a size in Go. Unlike those of the library, they have no bounds.

The CRDs of Trainer, JobSet and KAI have no such bounds either, so numbers beyond the size may be stored. The webhooks
refuse new ones, and allow other changes of the objects that have them.
"""

from typing import Annotated

from controller_runtime.machinery.crd import Markers

Int32 = Annotated[int, Markers(format="int32")]
Int64 = Annotated[int, Markers(format="int64")]
