# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server for tests: find or build etcd and kube-apiserver, start them, and stop them."""

from .binaries import Binaries as Binaries
from .binaries import Binary as Binary
from .binaries import Tool as Tool
from .binaries import ToolGroup as ToolGroup
from .binaries import cache_directory as cache_directory
from .controlplane import DEFAULT_RELEASE as DEFAULT_RELEASE
from .controlplane import ETCD as ETCD
from .controlplane import RELEASES as RELEASES
from .controlplane import ControlPlane as ControlPlane
from .controlplane import kube_tool as kube_tool
from .environment import Environment as Environment
from .errors import ComponentError as ComponentError
from .errors import EnvtestError as EnvtestError
from .errors import ToolError as ToolError
from .eventually import EventuallyError as EventuallyError
from .eventually import consistently as consistently
from .eventually import eventually as eventually
from .files import file_lock as file_lock
from .files import private_directory as private_directory
from .files import write_atomically as write_atomically
from .files import write_private as write_private
from .manifests import CRD as CRD
from .manifests import WebhookServing as WebhookServing
from .manifests import apply_manifests as apply_manifests
from .manifests import install_crds as install_crds
from .manifests import open_crd as open_crd
from .manifests import point_at as point_at
from .manifests import read_manifests as read_manifests
from .manifests import select_namespaces as select_namespaces
from .manifests import wait_established as wait_established
from .pki import CERTIFICATE_LIFETIME as CERTIFICATE_LIFETIME
from .pki import Authority as Authority
from .pki import KeyPair as KeyPair
from .pki import kubeconfig as kubeconfig
from .ports import HOST as HOST
from .ports import free_ports as free_ports
from .process import Component as Component
from .process import Probe as Probe
from .process import Supervisor as Supervisor
from .progress import PlainProgress as PlainProgress
from .progress import Progress as Progress
