"""The bearer token that guards the API and the drivers' connections, when one is configured."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from checkpointing.rest.errors import error_response


class BearerToken:
    """ASGI middleware: 401 (a refused handshake for a WebSocket) unless `Authorization: Bearer <token>` is right."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_right(Headers(scope=scope).get("authorization", "")):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="a bearer token is needed")(scope, receive, send)
        else:
            response = error_response(401, "A bearer token is needed, or the one sent is wrong.")
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)

    def _is_right(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)
