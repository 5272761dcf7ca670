# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A cache of objects in memory, which are read, indexed and reported to handlers when they change.

The package lists, watches and stores objects. It does not depend on queues and controllers.
"""

from .cache import Cache as Cache
from .cache import Reads as Reads
from .codec import Transform as Transform
from .errors import BadObjectError as BadObjectError
from .errors import CacheDegradedError as CacheDegradedError
from .errors import CacheError as CacheError
from .errors import CacheNotStartedError as CacheNotStartedError
from .errors import CacheSyncTimeoutError as CacheSyncTimeoutError
from .errors import IndexMissingError as IndexMissingError
from .errors import NamespaceNotCachedError as NamespaceNotCachedError
from .errors import UndecodableObjectError as UndecodableObjectError
from .handlers import EventHandlerFuncs as EventHandlerFuncs
from .handlers import LazyHandlerFuncs as LazyHandlerFuncs
from .handlers import Registration as Registration
from .informer import Informer as Informer
from .options import ALL_NAMESPACES as ALL_NAMESPACES
from .options import ByObject as ByObject
from .options import InNamespace as InNamespace
from .options import Options as Options
from .store import older as older
