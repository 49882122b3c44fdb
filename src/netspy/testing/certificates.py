"""Throw-away certificates for TLS tests: a CA, a server and a client signed by it, made with `openssl`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CA = """\
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""
_LEAF = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName={names}
"""


class Certificates:
    """Files in a folder of their own, removed with the block: `ca`, and `server` and `client` with their `…_key`.

    `names` are what the server's certificate holds, in openssl's form.
    """

    def __init__(self, names: str = "DNS:localhost,IP:127.0.0.1,IP:::1") -> None:
        """Makes them, within some 100 ms. Raises FileNotFoundError without the program `openssl`."""
        tool = shutil.which("openssl")
        if tool is None:
            raise FileNotFoundError("no openssl on PATH")
        self._tool = tool
        self.folder = Path(tempfile.mkdtemp(prefix="netspy-tls-"))
        self.ca, self.ca_key = self._pair("ca")
        self.server, self.server_key = self._pair("server")
        self.client, self.client_key = self._pair("client")
        try:
            self._make("ca", _CA)
            self._make("server", _LEAF.format(names=names))
            self._make("client", _LEAF.format(names="DNS:client"))
        except BaseException:
            self.close()
            raise

    def _pair(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _make(self, name: str, extensions: str) -> None:
        certificate, key = self._pair(name)
        wanted, asked = self.folder / f"{name}.ext", self.folder / f"{name}.csr"
        wanted.write_text(extensions)
        self._run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        self._run("req", "-new", "-key", key, "-subj", f"/CN=netspy test {name}", "-out", asked)
        signed: list[str | Path] = ["-signkey", key]
        if name != "ca":
            signed = ["-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial"]
        self._run(
            "x509", "-req", "-in", asked, "-out", certificate, "-days", "2", "-extfile", wanted, *signed
        )

    def _run(self, *args: str | Path) -> None:
        subprocess.run(  # noqa: S603 - fixed arguments
            [self._tool, *(str(arg) for arg in args)], check=True, capture_output=True, timeout=60
        )

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
