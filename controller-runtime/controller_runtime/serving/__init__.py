# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/1.1 server that maps paths to async functions, with or without TLS.

It serves metrics, probes and webhooks. A handler gets the whole body, which is never longer than the server's limit. If
a handler raises an error, the server logs it and answers with 500.
"""

from typing import TYPE_CHECKING

from .connection import HEAD_TIMEOUT as HEAD_TIMEOUT
from .connection import KEEP_ALIVE as KEEP_ALIVE
from .connection import MAX_HEAD as MAX_HEAD
from .message import Handler as Handler
from .message import Headers as Headers
from .message import HTTPRequest as HTTPRequest
from .message import HTTPResponse as HTTPResponse
from .message import Inspection as Inspection
from .message import ServerError as ServerError
from .server import Address as Address
from .server import Server as Server
from .server import TLSOptions as TLSOptions
from .server import TLSProvider as TLSProvider

if TYPE_CHECKING:
    from . import certificates as certificates  # its import takes 60 ms: import it only to issue certificates
