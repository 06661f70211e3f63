"""Access control: the bearer token and the certificates that the services and their clients share.

Without a token and certificates, services answer everybody, over plain HTTP and gRPC.
"""

import ipaddress
import logging
import os
import re
import ssl
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import compare_digest
from typing import TYPE_CHECKING, Any, Self

from pydantic import field_validator, model_validator

from rookery.errors import SetupError
from rookery.files import expanded
from rookery.settings import Settings

if TYPE_CHECKING:
    import grpc

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "ROOKERY_TOKEN"  # noqa: S105 - its name, not its value
"""The environment variable with the token. It is not a flag, because other users can see flags."""

REMEDY = "set ROOKERY_TOKEN or --token-file as the server does"
"""What an error about a refused token says besides who refused it."""

PROBES = frozenset({"/healthz", "/readyz"})
METRICS = "/metrics"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
"""`b64token` of RFC 6750, section 2.1, of a length that cannot be guessed."""

_HEADER_VALUE = re.compile(r"[ -~]*")


@dataclass(frozen=True, slots=True)
class Access:
    """The token and certificates that a process requires of callers and sends to other services."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    guard_metrics: bool = False
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    @property
    def scheme(self) -> str:
        """`https` if this process serves with a certificate, else `http`."""
        return "https" if self.cert else "http"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        return [(name.lower(), value) for name, value in self.headers.items()]

    @property
    def player_options(self) -> dict[str, object]:
        """The options that give the token to a player behind our own server, without quoting it."""
        if self.token_file:
            return {"key-file": self.token_file}
        return {"key-env": TOKEN_VARIABLE} if self.token else {}

    def with_key(self, variable: str, file: Path | None) -> "Access":
        """This access with another token: that in the environment variable or the file, or none. Raises
        `SetupError` if the variable is empty, the file cannot be read, or HTTP cannot send what is there."""
        key = os.environ.get(variable, "") if variable else ""
        if variable and not key:
            raise SetupError(f"the environment variable {variable!r} is empty (key-env)")
        try:
            key = expanded(file).read_text().strip() if file else key
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"{file}: {error} (key-file)") from error
        if not _HEADER_VALUE.fullmatch(key):
            raise SetupError(
                f"{file or variable} has characters that no HTTP header may have (key-env, key-file)"
            )
        return replace(self, token=key, token_file=None)

    def admits(self, authorization: str) -> bool:
        """Whether the value of an Authorization header has the token. Compares in constant time.

        The token may also be the password of RFC 7617's Basic, with any user: many clients send that for
        `http://x:TOKEN@host`.
        """
        scheme, _, credentials = authorization.partition(" ")
        token = credentials.strip().encode()
        if scheme.lower() == "basic":
            try:
                token = b64decode(token, validate=True).partition(b":")[2]
            except ValueError:
                return not self.token
        is_equal = compare_digest(token, self.token.encode())
        return not self.token or (is_equal and scheme.lower() in ("bearer", "basic"))

    def is_open(self, path: str) -> bool:
        """Whether everybody may ask for this HTTP path."""
        return not self.token or path in PROBES or (path == METRICS and not self.guard_metrics)

    def warn_if_open(self, name: str, host: str) -> None:
        """Logs a warning if the service `name`, which listens on `host`, answers everybody on the network."""
        if not self.token and not is_loopback(host):
            logger.warning(
                "%s listens on %s without a token, so everybody who reaches it may call it: set "
                "ROOKERY_TOKEN or --token-file",
                name,
                host,
            )

    def client_tls(self) -> ssl.SSLContext:
        """How HTTP clients check `https://` servers, and which certificate they show."""
        import httpx

        context = ssl.create_default_context(cafile=self.ca) if self.ca else httpx.create_ssl_context()
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context

    def server_tls(self) -> dict[str, Any]:
        """uvicorn's options. With a CA, callers must show a certificate of it."""
        if not self.cert:
            return {}
        mutual = {"ssl_ca_certs": str(self.ca), "ssl_cert_reqs": int(ssl.CERT_REQUIRED)} if self.ca else {}
        return {"ssl_certfile": str(self.cert), "ssl_keyfile": str(self.key), **mutual}

    def add_grpc_port(self, server: "grpc.aio.Server", address: str) -> int:
        """Binds `server` to `address`, with TLS if there is a certificate. Returns the port."""
        import grpc

        if not (self.cert and self.key):
            return server.add_insecure_port(address)
        pair = self.key.read_bytes(), self.cert.read_bytes()
        ca = self.ca.read_bytes() if self.ca else None
        credentials = grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)
        return server.add_secure_port(address, credentials)

    def grpc_channel(self, target: str, options: Sequence[tuple[str, Any]]) -> "grpc.aio.Channel":
        """A channel to `target`, with TLS if that is https://HOST:PORT or there is a certificate or a CA."""
        import grpc

        address = target.removeprefix("https://")
        if not (self.cert or self.ca or address != target):
            return grpc.aio.insecure_channel(target, options=options)
        # By itself, gRPC trusts Mozilla's authorities, and not those that were added to the system.
        system = ssl.get_default_verify_paths().cafile
        authorities = self.ca or (Path(system) if system else None)
        ca, key, cert = (path.read_bytes() if path else None for path in (authorities, self.key, self.cert))
        return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options=options)


def is_loopback(host: str) -> bool:
    """Whether the name or address is that of this machine, for itself alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


OPEN = Access()
"""Neither token nor certificates."""


class AccessSettings(Settings, env_prefix="ROOKERY_", help_group="access"):
    """Settings of all services and clients. ROOKERY_TOKEN_FILE, ROOKERY_TLS_CERT ... set them for all."""

    token_file: Path | None = None
    """File with the token that services demand of callers and clients send (`Authorization: Bearer ...`). The
    variable ROOKERY_TOKEN has the token itself. Default: no token, and everybody may call."""
    guard_metrics: bool = False
    """Demand the token for /metrics too. The probes, /healthz and /readyz, are always open."""
    tls_cert: Path | None = None
    """Certificate (PEM) of this process, for HTTP and gRPC. Default: no TLS."""
    tls_key: Path | None = None
    """Private key (PEM) of the certificate."""
    tls_ca: Path | None = None
    """Certificates (PEM) that sign those of the other services. With it, services admit only callers that
    show one. Default: the system's, and no caller must show one."""

    @field_validator("token_file", "tls_cert", "tls_key", "tls_ca", mode="before")
    @classmethod
    def _empty_is_none(cls, path: object) -> object:
        return None if path == "" else path

    @model_validator(mode="after")
    def _key_and_certificate(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give both --tls-cert and --tls-key, or neither")
        return self

    @property
    def access(self) -> Access:
        """The token and the certificates. Raises `SetupError` if a file cannot be read or is not a PEM file,
        the key is not the certificate's, or the token is not one."""
        for path in (self.tls_cert, self.tls_key, self.tls_ca):
            if path and not os.access(path, os.R_OK):
                raise SetupError(f"cannot read {str(path)!r} (--tls-cert, --tls-key, --tls-ca)")
        self._check_certificates()
        return Access(
            token=self._token(),
            token_file=self.token_file,
            guard_metrics=self.guard_metrics,
            cert=self.tls_cert,
            key=self.tls_key,
            ca=self.tls_ca,
        )

    @property
    def access_values(self) -> Mapping[str, Any]:
        """These settings as they were given, to be passed on to another process."""
        return self.model_dump(include=set(AccessSettings.model_fields), exclude_defaults=True)

    def _check_certificates(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.tls_ca:
                context.load_verify_locations(self.tls_ca)
        except ssl.SSLError as error:
            raise SetupError(f"no certificates in {str(self.tls_ca)!r}: {error} (--tls-ca)") from error
        try:
            if self.tls_cert:
                # Without the password, OpenSSL would ask the terminal for that of an encrypted key.
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
        except ssl.SSLError as error:
            raise SetupError(
                f"{str(self.tls_cert)!r} and {str(self.tls_key)!r} are not a certificate and its key: "
                f"{error} (--tls-cert, --tls-key)"
            ) from error

    def _token(self) -> str:
        place = TOKEN_VARIABLE if self.token_file is None else f"--token-file {str(self.token_file)!r}"
        try:
            token = self.token_file.read_text().strip() if self.token_file else os.environ.get(place, "")
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"{place}: {error}") from error
        is_set = self.token_file is not None or place in os.environ
        if is_set and not _TOKEN.fullmatch(token):
            raise SetupError(
                f"{place} has no token of at least 16 letters, digits and -._~+/ "
                "(make one with: openssl rand -hex 32)"
            )
        return token
