# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The SSH keys of an MPI TrainJob: the key pair, its Secret, and the volume with the files that ssh reads."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from controller_runtime.apis.core.v1 import KeyToPath, SecretVolumeSource, Volume

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.interface import GeneratedSecret
from pkg.util import trainjob

SUFFIX: Final = "-mpi-ssh-auth"
_SSH_AUTH: Final = "kubernetes.io/ssh-auth"
_PRIVATE_KEY: Final = "ssh-privatekey"
_PUBLIC_KEY: Final = "ssh-publickey"
_KEY_TYPE: Final = b"ecdsa-sha2-nistp521"
_CURVE: Final = b"nistp521"
_POINT_SIZE: Final = 133
"""Bytes of an uncompressed point of the curve."""
_MODE: Final = 0o400
_FILES: Final = (
    (_PRIVATE_KEY, "id_rsa", 0o640),  # the name that ssh looks for, with any type of key
    (_PUBLIC_KEY, "id_rsa.pub", 0o644),
    (_PUBLIC_KEY, "authorized_keys", 0o644),
)
VOLUME: Final = "mpi-ssh-auth"


class SSHKeys(NamedTuple):
    """A key pair: the private key as PEM, and the public key as a line of ``authorized_keys``."""

    private: bytes
    public: bytes


def new_ssh_keys() -> SSHKeys:
    """Return a new ECDSA key pair on P-521."""
    from cryptography.hazmat.primitives import serialization  # slow to load, and only MPI needs it
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    # The private key ends with the point of the public key (RFC 5915). To compute the point again takes longer.
    point = base64.b64decode(b"".join(private.splitlines()[1:-1]))[-_POINT_SIZE:]
    parts = (_KEY_TYPE, _CURVE, point)  # RFC 5656, section 3.1
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return SSHKeys(private, b"%b %b\n" % (_KEY_TYPE, base64.b64encode(blob)))


def secret(train_job: TrainJob, keys: SSHKeys) -> GeneratedSecret:
    """Return the Secret with a key pair."""
    return GeneratedSecret(
        metadata=trainjob.child_metadata(train_job, SUFFIX),
        type=_SSH_AUTH,
        data={_PRIVATE_KEY: _base64(keys.private), _PUBLIC_KEY: _base64(keys.public)},
        immutable=True,
    )


def volume(job: str, *, restricted: bool) -> Volume:
    """Return the volume with the key files of a TrainJob. With ``restricted``, the volume sets the files' modes."""
    items = [KeyToPath(key=key, path=path, mode=mode if restricted else None) for key, path, mode in _FILES]
    source = SecretVolumeSource(
        secret_name=job + SUFFIX, default_mode=_MODE if restricted else None, items=items
    )
    return Volume(name=VOLUME, secret=source)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
