"""Forms with secrets and with the authentication at a server.

A page never contains stored secrets: an empty field keeps the stored one, and a secret is only sent to the server that
it was entered for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.utils.translation import gettext_lazy as _

from dashboard.forms.editing import EditForm
from dashboard.language import rendered
from monitoring.models import Authentication
from monitoring.secret import Secret

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class SecretsForm(EditForm):
    """A form of a model with secrets. `secrets` are their fields, `sent` those that are sent to the server."""

    secrets: ClassVar[tuple[str, ...]] = ()
    sent: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stored_secrets: dict[str, Secret] = {name: getattr(self.edited_row(), name) for name in self.secrets}
        for name, secret in self._stored_secrets.items():
            if secret:
                stored = _("A value is stored. Leave the field empty to keep it.")
                problem = secret.problem()
                self.fields[name].help_text = rendered(problem) if problem else stored
            elif self.is_bound and self.data.get(self.add_prefix(name)):
                self.fields[name].help_text = _("Enter the secret again: Waymark does not send secrets to the page.")

    def stored_values(self) -> dict[str, object]:
        return super().stored_values() | self._stored_secrets

    def names_other_server(self, cleaned: dict[str, Any]) -> bool:
        """Return whether the settings name another server than the stored ones."""
        raise NotImplementedError

    def clean_authentication_fields(self, cleaned: dict[str, Any]) -> None:
        """Validate `authentication`, `username`, `password` and `token`."""
        kind = cleaned.get("authentication")
        if kind != Authentication.BASIC:
            cleaned |= {"username": "", "password": Secret()}
        elif not cleaned.get("username"):
            self.add_error("username", _("Enter a user name."))
        elif ":" in cleaned["username"]:
            self.add_error("username", _("A user name cannot contain a colon."))
        if kind != Authentication.BEARER:
            cleaned["token"] = Secret()
        self.keep_stored_secret(
            cleaned, "password", needed=kind == Authentication.BASIC, missing=_("Enter a password.")
        )
        self.keep_stored_secret(cleaned, "token", needed=kind == Authentication.BEARER, missing=_("Enter a token."))
        token = cleaned.get("token")
        if isinstance(token, str) and (not token.isascii() or any(c.isspace() for c in token)):
            self.add_error("token", _("A token cannot contain spaces or non-ASCII characters: it is sent in a header."))

    def keep_stored_secret(self, cleaned: dict[str, Any], name: str, *, needed: bool, missing: StrOrPromise) -> None:
        """Keep the stored secret if the field is empty, but only for the same server."""
        if not cleaned.get(name) and not isinstance(cleaned.get(name), Secret):
            cleaned[name] = self._stored_secrets[name]
            if cleaned[name] and name in self.sent and self.names_other_server(cleaned):
                self.add_error(name, _("The address has changed. Enter the secret again for the new address."))
                return
        if needed and not cleaned[name]:
            self.add_error(name, missing)
