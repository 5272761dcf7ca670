# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to an API server: connection settings, requests as values, one transport and kind discovery.

Objects are opaque to this package; ``controller_runtime.client`` interprets them.
"""

from . import request as request
from .config import Config as Config
from .config import Impersonation as Impersonation
from .config import user_agent as user_agent
from .credentials import Anonymous as Anonymous
from .credentials import Basic as Basic
from .credentials import Credentials as Credentials
from .credentials import StaticToken as StaticToken
from .credentials import TokenFile as TokenFile
from .discovery import PublishedSchema as PublishedSchema
from .discovery import RESTMapper as RESTMapper
from .discovery import published_schema as published_schema
from .errors import AnswerError as AnswerError
from .errors import ConfigError as ConfigError
from .errors import ConnectError as ConnectError
from .errors import ConnectTimeoutError as ConnectTimeoutError
from .errors import InvalidRequestError as InvalidRequestError
from .errors import NoKindMatchError as NoKindMatchError
from .errors import RestError as RestError
from .errors import TransportError as TransportError
from .errors import TransportTimeoutError as TransportTimeoutError
from .errors import decoded as decoded
from .fake import FakeResponse as FakeResponse
from .fake import FakeTransport as FakeTransport
from .layers import CompleteResponse as CompleteResponse
from .layers import Response as Response
from .layers import RoundTripper as RoundTripper
from .layers import warnings_in as warnings_in
from .loading import config_from_dict as config_from_dict
from .loading import in_cluster_config as in_cluster_config
from .loading import load_config as load_config
from .request import Request as Request
from .request import field_selector_string as field_selector_string
from .streams import DENIED as DENIED
from .streams import Follower as Follower
from .streams import StreamResponse as StreamResponse
from .streams import StreamStoppedError as StreamStoppedError
from .streams import WatchLoop as WatchLoop
from .tls import IssuedPair as IssuedPair
from .tls import PrivateFile as PrivateFile
from .tls import TLSConfig as TLSConfig
from .tls import load_chain as load_chain
from .transport import Transport as Transport
