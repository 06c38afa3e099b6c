"""A small OpenID Connect provider over HTTP.

It signs real tokens and checks PKCE and the client's secret. Tests can make it return wrong tokens.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID, CLIENT_SECRET = "waymark", "the client's own secret"


@dataclass
class Provider:
    """The state of the provider.

    `person` has the claims of the logged-in user. `wrong_claims` are wrong claims, which replace these in tokens. With
    `uses_wrong_key`, tokens are signed with another key.
    """

    issuer: str = ""
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "s-1", "preferred_username": "ida"})
    wrong_claims: dict[str, Any] = field(default_factory=dict)
    uses_wrong_key: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Return the URL to which the browser is redirected. The user always agrees."""
        assert (query["client_id"], query["response_type"]) == (CLIENT_ID, "code")
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?code={code}&state={query['state']}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if not self._is_client(authorization):
            return 401, {"error": "invalid_client"}
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "wrong verifier"}
        answer = {"access_token": "at", "token_type": "Bearer", "expires_in": 60}
        return 200, answer | {"id_token": self._id_token(asked["nonce"])}

    def _is_client(self, authorization: str) -> bool:
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (CLIENT_ID, CLIENT_SECRET)

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        true = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 60, "nonce": nonce}
        key = RSAKey.generate_key(2048, {"kid": "one"}) if self.uses_wrong_key else self.key
        return jwt.encode({"alg": "RS256", "kid": "one"}, true | self.person | self.wrong_claims, key)

    def keys(self) -> dict[str, Any]:
        return dict(KeySet([self.key]).as_dict(private=False))


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/authorize":
                self.send_response(302)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                self.send_header("Location", provider.authorize(query))
                self.end_headers()
                return
            documents = {"/.well-known/openid-configuration": provider.metadata, "/keys": provider.keys}
            self._answer(200, documents[url.path]())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*provider.token(form, self.headers.get("Authorization", "")))

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
