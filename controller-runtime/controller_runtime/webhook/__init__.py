# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks: the server, its certificates, and validators and defaulters behind it."""

from .admission import CustomDefaulter as CustomDefaulter
from .admission import CustomValidator as CustomValidator
from .admission import DefaulterHandler as DefaulterHandler
from .admission import Handler as Handler
from .admission import ValidatorHandler as ValidatorHandler
from .certwatcher import CertificateError as CertificateError
from .certwatcher import CertWatcher as CertWatcher
from .certwatcher import SelfSigned as SelfSigned
from .review import Webhook as Webhook
from .server import Server as Server
from .server import default_cert_dir as default_cert_dir
