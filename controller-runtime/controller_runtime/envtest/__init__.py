# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server for tests: find or build etcd and kube-apiserver, start them, and stop them."""

from .binaries import Binaries as Binaries
from .binaries import Binary as Binary
from .crds import open_crd as open_crd
from .environment import Environment as Environment
from .errors import ComponentError as ComponentError
from .errors import EnvtestError as EnvtestError
from .errors import ToolError as ToolError
from .eventually import EventuallyError as EventuallyError
from .eventually import consistently as consistently
from .eventually import eventually as eventually
from .manifests import apply_manifests as apply_manifests
from .manifests import read_manifests as read_manifests
from .process import Component as Component
from .process import Supervisor as Supervisor
from .progress import PlainProgress as PlainProgress
from .progress import Progress as Progress
from .progress import SilentProgress as SilentProgress
from .tool import Tool as Tool
from .tool import ToolGroup as ToolGroup
from .webhooks import WebhookServing as WebhookServing
from .webhooks import point_at as point_at
