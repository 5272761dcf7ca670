# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pkg.runtime.framework.plugins.sshkeys import new_ssh_keys


def test_the_keys_are_a_pair_that_ssh_can_read() -> None:
    keys = new_ssh_keys()

    private = load_pem_private_key(keys.private, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp521r1"
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert keys.public == public + b"\n"
    assert new_ssh_keys() != keys
