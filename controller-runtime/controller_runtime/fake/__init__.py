# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""FakeClient, a client for unit tests and offline use, the API server in memory behind it, and FakeRecorder."""

from .client import Call as Call
from .client import FakeClient as FakeClient
from .client import FakeSubResource as FakeSubResource
from .recorder import FakeEvent as FakeEvent
from .recorder import FakeRecorder as FakeRecorder
from .server import Server as Server
from .writes import completer as completer
