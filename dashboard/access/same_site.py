"""Links back to a page of Waymark, from a Referer header or a parameter. Addresses of other sites are not followed."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme


def own_path(request: HttpRequest, page: str) -> str:
    """Return the path and the query string of `page`, or "" if it is not a page of this site."""
    own = url_has_allowed_host_and_scheme(page, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    path = urlsplit(page)._replace(scheme="", netloc="").geturl() if page and own else ""
    # Without its host, an address may begin with two slashes, which a browser would read as the address of a host.
    return path if path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts=None) else ""
