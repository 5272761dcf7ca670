# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""controller-runtime for Python: the names that a controller needs, ``import controller_runtime as ctrl``.

    ctrl.log.configure()
    manager = ctrl.Manager(await ctrl.load_config(), ctrl.Options())
    ctrl.new_controller_managed_by(manager).for_(Pod).complete(reconciler)
    async with ctrl.setup_signal_handler() as stop:
        await manager.start(stop)

The names are loaded when first used: importing one package of ``controller_runtime`` does not load the others. Every
package is also an attribute, e.g. ``ctrl.cache``. Type checkers know the packages that are imported below.
"""

import typing as _typing

from . import _ondemand

if _typing.TYPE_CHECKING:
    from . import apis as apis
    from . import builder as builder
    from . import cache as cache
    from . import client as client
    from . import controller as controller
    from . import event as event
    from . import fake as fake
    from . import handler as handler
    from . import healthz as healthz
    from . import leaderelection as leaderelection
    from . import log as log
    from . import machinery as machinery
    from . import manager as manager
    from . import metrics as metrics
    from . import predicate as predicate
    from . import reconcile as reconcile
    from . import recorder as recorder
    from . import rest as rest
    from . import serving as serving
    from . import source as source
    from . import webhook as webhook
    from . import workqueue as workqueue
    from .apis.meta.v1 import Condition as Condition
    from .apis.meta.v1 import LabelSelector as LabelSelector
    from .apis.meta.v1 import ObjectMeta as ObjectMeta
    from .apis.meta.v1 import OwnerReference as OwnerReference
    from .builder import new_controller_managed_by as new_controller_managed_by
    from .builder import new_webhook_managed_by as new_webhook_managed_by
    from .cache import CacheError as CacheError
    from .client import Client as Client
    from .client import Reader as Reader
    from .client import Writer as Writer
    from .client import ignore_not_found as ignore_not_found
    from .client import merge_from as merge_from
    from .client import retry_on_conflict as retry_on_conflict
    from .client import strategic_merge_from as strategic_merge_from
    from .client import with_field_owner as with_field_owner
    from .controller import ControllerOptions as ControllerOptions
    from .controller.controllerutil import OperationResult as OperationResult
    from .controller.controllerutil import add_finalizer as add_finalizer
    from .controller.controllerutil import contains_finalizer as contains_finalizer
    from .controller.controllerutil import controller_of as controller_of
    from .controller.controllerutil import create_or_patch as create_or_patch
    from .controller.controllerutil import create_or_update as create_or_update
    from .controller.controllerutil import has_controller_reference as has_controller_reference
    from .controller.controllerutil import has_owner_reference as has_owner_reference
    from .controller.controllerutil import owner_reference as owner_reference
    from .controller.controllerutil import remove_controller_reference as remove_controller_reference
    from .controller.controllerutil import remove_finalizer as remove_finalizer
    from .controller.controllerutil import remove_owner_reference as remove_owner_reference
    from .controller.controllerutil import set_controller_reference as set_controller_reference
    from .controller.controllerutil import set_owner_reference as set_owner_reference
    from .log import logger_from as logger_from
    from .machinery import GVK as GVK
    from .machinery import Duration as Duration
    from .machinery import Int32 as Int32
    from .machinery import Int64 as Int64
    from .machinery import NamespacedName as NamespacedName
    from .machinery import Object as Object
    from .machinery import Struct as Struct
    from .machinery import Unstructured as Unstructured
    from .machinery import crd as crd
    from .machinery import metadata_only as metadata_only
    from .machinery import unstructured as unstructured
    from .machinery.conditions import set_status_condition as set_status_condition
    from .machinery.errors import AlreadyExistsError as AlreadyExistsError
    from .machinery.errors import BadRequestError as BadRequestError
    from .machinery.errors import ConflictError as ConflictError
    from .machinery.errors import ExpiredError as ExpiredError
    from .machinery.errors import ForbiddenError as ForbiddenError
    from .machinery.errors import InvalidError as InvalidError
    from .machinery.errors import MethodNotAllowedError as MethodNotAllowedError
    from .machinery.errors import NotFoundError as NotFoundError
    from .machinery.errors import ServerError as ServerError
    from .machinery.errors import ServerTimeoutError as ServerTimeoutError
    from .machinery.errors import StatusError as StatusError
    from .machinery.errors import TooManyRequestsError as TooManyRequestsError
    from .machinery.errors import UnauthorizedError as UnauthorizedError
    from .manager import ControllerDefaults as ControllerDefaults
    from .manager import Manager as Manager
    from .manager import ManagerError as ManagerError
    from .manager import Options as Options
    from .manager import setup_signal_handler as setup_signal_handler
    from .reconcile import AsReconciler as AsReconciler
    from .reconcile import Reconciler as Reconciler
    from .reconcile import Request as Request
    from .reconcile import Result as Result
    from .reconcile import TerminalError as TerminalError
    from .recorder import EventRecorder as EventRecorder
    from .recorder import reference as reference
    from .rest import Config as Config
    from .rest import ConfigError as ConfigError
    from .rest import NoKindMatchError as NoKindMatchError
    from .rest import RestError as RestError
    from .rest import TransportError as TransportError
    from .rest import load_config as load_config
    from .webhook import CustomDefaulter as CustomDefaulter
    from .webhook import CustomMutator as CustomMutator
    from .webhook import CustomValidator as CustomValidator
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            "apis.meta.v1": (
                "Condition",
                "LabelSelector",
                "ObjectMeta",
                "OwnerReference",
            ),
            "builder": ("new_controller_managed_by", "new_webhook_managed_by"),
            "cache": ("CacheError",),
            "client": (
                "Client",
                "Reader",
                "Writer",
                "ignore_not_found",
                "merge_from",
                "retry_on_conflict",
                "strategic_merge_from",
                "with_field_owner",
            ),
            "controller": ("ControllerOptions",),
            "controller.controllerutil": (
                "OperationResult",
                "add_finalizer",
                "contains_finalizer",
                "controller_of",
                "create_or_patch",
                "create_or_update",
                "has_controller_reference",
                "has_owner_reference",
                "owner_reference",
                "remove_controller_reference",
                "remove_finalizer",
                "remove_owner_reference",
                "set_controller_reference",
                "set_owner_reference",
            ),
            "log": ("logger_from",),
            "machinery": (
                "GVK",
                "Duration",
                "Int32",
                "Int64",
                "NamespacedName",
                "Object",
                "Struct",
                "Unstructured",
                "crd",
                "metadata_only",
                "unstructured",
            ),
            "machinery.conditions": ("set_status_condition",),
            "machinery.errors": (
                "AlreadyExistsError",
                "BadRequestError",
                "ConflictError",
                "ExpiredError",
                "ForbiddenError",
                "InvalidError",
                "MethodNotAllowedError",
                "NotFoundError",
                "ServerError",
                "ServerTimeoutError",
                "StatusError",
                "TooManyRequestsError",
                "UnauthorizedError",
            ),
            "manager": (
                "ControllerDefaults",
                "Manager",
                "ManagerError",
                "Options",
                "setup_signal_handler",
            ),
            "reconcile": (
                "AsReconciler",
                "Reconciler",
                "Request",
                "Result",
                "TerminalError",
            ),
            "recorder": (
                "EventRecorder",
                "reference",
            ),
            "rest": (
                "Config",
                "ConfigError",
                "NoKindMatchError",
                "RestError",
                "TransportError",
                "load_config",
            ),
            "webhook": (
                "CustomDefaulter",
                "CustomMutator",
                "CustomValidator",
            ),
        },
        submodules=True,
    )
