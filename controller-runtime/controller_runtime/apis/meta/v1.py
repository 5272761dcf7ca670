# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The structs of metav1, which kinds of all API groups share."""

from controller_runtime.machinery.meta import Condition as Condition
from controller_runtime.machinery.meta import DeleteOptions as DeleteOptions
from controller_runtime.machinery.meta import GroupVersionKind as GroupVersionKind
from controller_runtime.machinery.meta import GroupVersionResource as GroupVersionResource
from controller_runtime.machinery.meta import LabelSelector as LabelSelector
from controller_runtime.machinery.meta import LabelSelectorRequirement as LabelSelectorRequirement
from controller_runtime.machinery.meta import ListMeta as ListMeta
from controller_runtime.machinery.meta import ManagedFieldsEntry as ManagedFieldsEntry
from controller_runtime.machinery.meta import ObjectMeta as ObjectMeta
from controller_runtime.machinery.meta import OwnerReference as OwnerReference
from controller_runtime.machinery.meta import Preconditions as Preconditions
from controller_runtime.machinery.meta import Status as Status
from controller_runtime.machinery.meta import StatusCause as StatusCause
from controller_runtime.machinery.meta import StatusDetails as StatusDetails
