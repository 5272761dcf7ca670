# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The certificate by which the brokers of one Flux cluster know each other: a CURVE key pair of ZeroMQ."""

from __future__ import annotations

import base64
from typing import Final

_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)


def new_certificate(name: str) -> str:
    """Return a certificate file with a new key pair. ``name`` is recorded in it."""
    from cryptography.hazmat.primitives.asymmetric import x25519  # slow to load, and only Flux needs it

    key = x25519.X25519PrivateKey.generate()
    return (
        "#  ZeroMQ CURVE Secret Certificate\n\n"
        f'metadata\n    name = "{name}"\n'
        f'curve\n    public-key = "{z85(key.public_key().public_bytes_raw())}"\n'
        f'    secret-key = "{z85(key.private_bytes_raw())}"\n'
    )


def z85(data: bytes) -> str:
    """Return the Z85 text of data whose length is a multiple of four."""
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")
