# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhooks: the server, its certificates, and the validators, defaulters and converters behind it."""

from . import admission as admission
from .admission import CustomDefaulter as CustomDefaulter
from .admission import CustomMutator as CustomMutator
from .admission import CustomValidator as CustomValidator
from .admission import DefaulterHandler as DefaulterHandler
from .admission import Handler as Handler
from .admission import MutatorHandler as MutatorHandler
from .admission import ValidatorHandler as ValidatorHandler
from .certwatcher import CertificateError as CertificateError
from .certwatcher import CertWatcher as CertWatcher
from .certwatcher import SelfSigned as SelfSigned
from .certwatcher import server_context as server_context
from .conversion import CONVERSION_PATH as CONVERSION_PATH
from .conversion import ConversionError as ConversionError
from .conversion import Conversions as Conversions
from .conversion import ConversionWebhook as ConversionWebhook
from .conversion import Convertible as Convertible
from .conversion import Spoke as Spoke
from .conversion import spoke_of as spoke_of
from .review import Webhook as Webhook
from .server import Server as Server
from .server import default_cert_dir as default_cert_dir
