"""Certificates for servers on loopback, by an authority of the test's own."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.missing import missing
from tests.support.process import ProcessEndedError
from tests.support.redis_programs import on_path

# An elliptic-curve key, because it takes no time to make.
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def make_certificates(folder: Path) -> Path:
    """An authority and its certificates, with every extension that Python 3.13 requires.

    ``ca.crt`` is the authority's; ``server.crt`` is for 127.0.0.1, ``elsewhere.crt`` for another
    name; ``server.key`` belongs to both.
    """
    if not shutil.which("openssl"):
        missing("openssl")
    subject = ["-subj", "/CN=authority"]
    openssl(
        *("req", "-x509", *KEY, "-nodes", "-days", "2"),
        *("-keyout", "ca.key", "-out", "ca.crt", *subject),
        *("-addext", "keyUsage=critical,keyCertSign"),
        cwd=folder,
    )
    openssl(
        *("req", *KEY, "-nodes", "-keyout", "server.key"),
        *("-out", "server.csr", "-subj", "/CN=localhost"),
        cwd=folder,
    )
    sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost", folder)
    sign("elsewhere", "subjectAltName=DNS:elsewhere.example", folder)
    return folder


@contextlib.contextmanager
def program_with_tls() -> Iterator[str | None]:
    """The Redis to start in this block with TLS; the wheels' programs are built without it."""
    try:
        yield on_path()
    except ProcessEndedError:
        missing("a Redis server with TLS")


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


def sign(name: str, subject: str, folder: Path) -> None:
    """A certificate from the authority for the one server key."""
    (folder / f"{name}.ext").write_text(
        f"{subject}\nauthorityKeyIdentifier=keyid\n", encoding="utf-8"
    )
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-days", "2", "-out", f"{name}.crt", "-extfile", f"{name}.ext"),
        cwd=folder,
    )
