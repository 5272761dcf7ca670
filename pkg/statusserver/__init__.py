# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The status server: it receives progress reports from pods, and writes them to the status of the pods' TrainJob."""

from .auth import ProjectedServiceAccountTokenAuthorizer as ProjectedServiceAccountTokenAuthorizer
from .issuer import Issuer as Issuer
from .pods import PodOwners as PodOwners
from .server import StatusHandler as StatusHandler
from .setup import StatusServer as StatusServer
from .setup import setup_server as setup_server
from .tokens import DeniedError as DeniedError
from .utils import status_url as status_url
from .utils import token_audience as token_audience
