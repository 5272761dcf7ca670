# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""FakeClient, a client for unit tests and offline use, and the API server in memory behind it."""

from .client import Call as Call
from .client import FakeClient as FakeClient
from .client import FakeSubResource as FakeSubResource
from .server import Server as Server
from .writes import completer as completer
