"""`tilewright dev sign`: an Ed25519 signature beside each file of a release, from a key in a file.

A signature is the 64 bytes of RFC 8032 over the bytes of the file, in `FILE.sig`: whoever has the
public key checks it with `openssl pkeyutl` and needs nothing of ours, no network and no service.
Names are not signed apart; what a wheel is called stands inside it, and `check-wheel` compares.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import ReleaseError, UsageError
from tilewright_release.checkout import Checkout
from tilewright_release.dev_tools import require_tools

# cryptography is of the extra `dev`; commands that sign nothing do without, so functions import it.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SUFFIX = ".sig"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", type=Path, nargs="*", help="wheels and sdists; all of dist/")
    parser.add_argument("--key", type=Path, required=True, help="private key, PKCS#8 in PEM")
    parser.add_argument(
        "--new-key",
        action="store_true",
        help="make the key first, and its public half beside it as KEY.pub; signs nothing",
    )


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Sign files, or make a key, and print what was written."""
    require_tools(("cryptography",), purpose="signing a release")
    if arguments.new_key:
        print(f"wrote {arguments.key} and {new_key(arguments.key)}; keep the first one secret")
        return 0
    files = arguments.files or released(checkout)
    if not files:
        msg = f"{checkout.root / 'dist'} holds nothing to sign; run `tilewright dev build-wheel`"
        raise ReleaseError(msg)
    for file in files:
        print(f"signed {file}: {sign(file, arguments.key)}")
    return 0


def released(checkout: Checkout) -> list[Path]:
    """Return the wheels and sdists in dist/, sorted."""
    dist = checkout.root / "dist"
    return sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])


def new_key(path: Path) -> Path:
    """Write a new private key that only its owner can read, and return the path of its public half.

    Raises UsageError when the file exists: a lost key cannot be had back.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        msg = f"--key {path} cannot be made: {error.strerror}"
        raise UsageError(msg) from error
    with os.fdopen(handle, "wb") as file:
        file.write(secret)
    beside = path.with_name(f"{path.name}.pub")
    beside.write_bytes(public)
    return beside


def sign(file: Path, key: Path) -> Path:
    """Write the signature of a file beside it and return its path."""
    signature = _private_key(key).sign(_read(file, "file to sign"))
    path = file.with_name(file.name + SUFFIX)
    path.write_bytes(signature)
    return path


def check_signature(file: Path, key: Path) -> str:
    """Return a sentence about the signature of a file; raises ReleaseError when it is not good."""
    from cryptography.exceptions import InvalidSignature

    path = file.with_name(file.name + SUFFIX)
    public = _public_key(key)
    try:
        public.verify(_read(path, "signature"), _read(file, "signed file"))
    except InvalidSignature as error:
        msg = f"{path.name} is no signature of {file.name} by the key {key}: do not install it"
        raise ReleaseError(msg) from error
    return f"{path.name} is by the key {key}"


def _private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path, "key"), password=None)
    except (ValueError, TypeError) as error:
        msg = f"--key {path} is no private key in PEM without a password: {error}"
        raise UsageError(msg) from error
    if not isinstance(key, Ed25519PrivateKey):
        msg = f"--key {path} is a {type(key).__name__}; it must be an Ed25519 key"
        raise UsageError(msg)
    return key


def _public_key(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path, "key"))
    except ValueError as error:
        msg = f"--key {path} is no public key in PEM: {error}"
        raise UsageError(msg) from error
    if not isinstance(key, Ed25519PublicKey):
        msg = f"--key {path} is a {type(key).__name__}; it must be an Ed25519 key"
        raise UsageError(msg)
    return key


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{what} {path} cannot be read: {error.strerror}"
        raise ReleaseError(msg) from error
