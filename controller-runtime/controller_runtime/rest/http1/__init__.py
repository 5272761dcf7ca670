# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to one server: a pool of connections, each an asyncio protocol around a parser written in C.

This package handles bytes: heads, framing, sockets, TLS, proxies and the assignment of connections to requests.
``controller_runtime.rest`` interprets responses and decides on retries. Every failure is an ``Error``, or a
``TimeoutError`` if no response was received in time.
"""

from .connection import ORDINARY as ORDINARY
from .connection import Bounds as Bounds
from .connection import Connection as Connection
from .connection import Error as Error
from .connection import GoneError as GoneError
from .connection import Headers as Headers
from .connection import Heads as Heads
from .connection import Incoming as Incoming
from .dial import CONNECT_TIMEOUT as CONNECT_TIMEOUT
from .dial import Dialer as Dialer
from .dial import Origin as Origin
from .dial import keepalive_socket as keepalive_socket
from .dial import without_credentials as without_credentials
from .pool import Pool as Pool
