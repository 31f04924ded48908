"""Where vehicles enrol and renew: a small HTTPS server, apart from the operators' API.

It is apart so that operators' actions stay on loopback while vehicles can reach this, and so that the authority's key
need not be on the coordinator's machine. Four addresses, JSON, no state of its own:

=======================  ============================================  ==============================================
``GET /v1/ca``           public                                        the CA's certificate (PEM)
``GET /v1/crl``          public                                        the revocation list (PEM)
``POST /v1/enrol``       ``token`` (its secret), ``request`` (CSR)     ``certificate``, ``ca``, ``crl``
``POST /v1/renew``       ``request``, ``certificate``, ``signature``   the same
=======================  ============================================  ==============================================

A vehicle that has nothing yet reads ``/v1/ca`` without verifying the server, compares its fingerprint with the one in
the token, and says the secret only on a second connection whose certificate this CA issued.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from broker.identity import check_owner
from broker.tls import CERT, KEY
from coordinator.authority.register import RENEWALS
from coordinator.authority.store import DAYS, Authority
from coordinator.http.access import PUBLIC, Door, open_door, stated_app
from coordinator.http.errors import in_words
from coordinator.http.guard import Guard, short_answer
from coordinator.http.server import HttpLimits, HttpServer
from schemas.errors import GlassfleetError, WireError
from schemas.limits import MAX_CSR_BYTES

_log = structlog.get_logger("glassfleet.authority")

PEM_TYPE = "application/x-pem-file"

Pem = Annotated[str, Field(min_length=1, max_length=MAX_CSR_BYTES)]


class Enrolment(BaseModel):
    """What a vehicle sends to enrol."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(min_length=1, max_length=200)]
    request: Pem


class Renewal(BaseModel):
    """What it sends to renew; the signature is base64."""

    model_config = ConfigDict(extra="forbid")

    request: Pem
    certificate: Pem
    signature: Annotated[str, Field(min_length=1, max_length=200)]


def make_app(
    authority: Authority,
    *,
    days: int = DAYS,
    limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    days : int
        How long the certificates that it issues are good for.
    """
    app = stated_app("Glassfleet authority")

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, fault: RequestValidationError) -> Response:
        return short_answer(request, *in_words(request, fault))

    @app.exception_handler(WireError)
    async def _refused(request: Request, fault: WireError) -> JSONResponse:
        peer = request.client and request.client.host
        _log.warning("refused", path=request.scope["path"], peer=peer, code=fault.code, reason=str(fault))
        return JSONResponse({"detail": fault.detail, "code": fault.code}, 403)

    @app.exception_handler(GlassfleetError)
    async def _failed(_request: Request, fault: GlassfleetError) -> JSONResponse:
        _log.error("failed", reason=str(fault))
        return JSONResponse({"detail": "the authority cannot do this now; its log says why"}, 500)

    @app.get("/v1/ca", dependencies=[PUBLIC])
    def _ca() -> Response:
        return PlainTextResponse(authority.ca_pem, media_type=PEM_TYPE)

    @app.get("/v1/crl", dependencies=[PUBLIC])
    def _crl() -> Response:
        return PlainTextResponse(authority.crl_pem, media_type=PEM_TYPE)

    def answer(certificate: bytes) -> dict[str, str]:
        parts = {"certificate": certificate, "ca": authority.ca_pem, "crl": authority.crl_pem}
        return {name: pem.decode() for name, pem in parts.items()}

    @app.post("/v1/enrol", dependencies=[PUBLIC])
    def _enrol(body: Enrolment) -> dict[str, str]:
        made = authority.enrol(body.request.encode(), body.token, days)
        _log.info("enrolled")
        return answer(made)

    @app.post("/v1/renew", dependencies=[PUBLIC])
    def _renew(body: Renewal) -> dict[str, str]:
        try:
            signature = base64.b64decode(body.signature, validate=True)
        except (binascii.Error, ValueError) as fault:
            raise WireError("bad-signature", "the signature is not base64") from fault
        made = authority.renew(body.request.encode(), body.certificate.encode(), signature, days, most=RENEWALS)
        _log.info("renewed")
        return answer(made)

    open_door(app, Door(limits, {}))
    app.add_middleware(Guard, limits=limits, error_response=short_answer)
    return app


def authority_server(
    authority: Authority,
    identity: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    days: int = DAYS,
    limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
) -> HttpServer:
    """Return a server of the application over TLS, which has yet to begin.

    Parameters
    ----------
    identity : Path
        Identity folder of the server: a coordinator's, with its host names in the certificate.
    host : str
        Address to bind.
    port : int
        0: a free one.
    days : int
        See `make_app`.

    Raises
    ------
    UsageError
        The folder is not a coordinator's, or the port is taken.
    """
    check_owner(identity, "coordinator")
    app = make_app(authority, days=days, limits=limits)
    return HttpServer(app, limits, host, port, certificate=identity / CERT, key=identity / KEY)
