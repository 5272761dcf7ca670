# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pipeline from a TrainJob and its runtime to objects: its data (Info) and its interface (Runtime)."""

from . import indexer as indexer
from .interface import GeneratedSecret as GeneratedSecret
from .interface import ReconcilerBuilder as ReconcilerBuilder
from .interface import Runtime as Runtime
from .interface import UnsupportedRuntimeError as UnsupportedRuntimeError
from .interface import UnsupportedTemplateError as UnsupportedTemplateError
from .interface import Waiting as Waiting
from .interface import runtime_for as runtime_for
from .remarks import Remark as Remark
from .remarks import about_runtime as about_runtime
from .remarks import about_train_job as about_train_job
from .runtime import Container as Container
from .runtime import Info as Info
from .runtime import PodSet as PodSet
from .runtime import RuntimePolicy as RuntimePolicy
from .runtime import Scheduler as Scheduler
from .runtime import TemplateSpec as TemplateSpec
from .runtime import ancestor_of as ancestor_of
from .runtime import containers_of as containers_of
from .runtime import extract_resource_per_node_from_runtime as extract_resource_per_node_from_runtime
from .runtime import get_num_gpu_per_node as get_num_gpu_per_node
from .runtime import new_info as new_info
from .runtime import new_pod_set as new_pod_set
from .runtime import resources_per_node as resources_per_node
from .runtime import runtime_ref_to_runtime_registry_key as runtime_ref_to_runtime_registry_key
from .runtime import template_spec_apply as template_spec_apply
