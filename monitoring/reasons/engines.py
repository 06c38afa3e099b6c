"""What a request to an engine comes to, or to ZooKeeper for its leader, and what a test of a cluster finds."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class EngineReason(ReasonCode):
    # No answer.
    NOT_LISTENING = "engines.not-listening", _("{url} cannot be reached: nothing listens there.")
    NOT_CONNECTED = "engines.not-connected", _("{url} cannot be reached: no connection came about in time.")
    NOT_REACHED = "engines.not-reached", _("{url} cannot be reached: {error}")
    HUNG_UP = "engines.hung-up", _("{url} took the connection and hung up without an answer.")
    BROKE_OFF = "engines.broke-off", _("{url} broke off in the middle of its answer.")
    TOO_SLOW = "engines.too-slow", _("{url} did not answer {path} within {limit_s:g} s.")
    CALL_TOO_SLOW = "engines.call-too-slow", _("{url} did not answer within {limit_s:g} s.")
    NOT_HTTP = "engines.not-http", _("{url} answers with something that is not HTTP.")
    NOT_HTTP_BUT_HTTPS = (
        "engines.not-http-but-https",
        _("{url} answers with something that is not HTTP; is it meant to be https://?"),
    )
    NOT_TLS = "engines.not-tls", _("{url} does not speak TLS; is it meant to be http://?")
    CERTIFICATE_REQUIRED = (
        "engines.certificate-required",
        _("{url} asks for a client's certificate that it trusts ({words})."),
    )
    BAD_CERTIFICATE = "engines.bad-certificate", _("The certificate of {url} {problem}.")
    NOT_VALID_YET = "engines.not-valid-yet", _("is not valid yet; are the clocks right?")
    EXPIRED = "engines.expired", _("has expired")
    SELF_SIGNED = "engines.self-signed", _("is self-signed; give it as the CA bundle to trust it")
    UNKNOWN_AUTHORITY = (
        "engines.unknown-authority",
        _("comes from an authority that is not trusted; give its certificate as the CA bundle"),
    )
    REVOKED = "engines.revoked", _("has been revoked")
    OTHER_HOST = "engines.other-host", _("is for another host ({detail})")
    UNTRUSTED = "engines.untrusted", _("is not trusted: {detail}")

    # Answers that are none.
    HTTP_STATUS = "engines.http-status", _("It answers {path} with HTTP {status}.")
    REDIRECTS = (
        "engines.redirects",
        _("HTTP {status}: the address redirects to {location}; enter the one it leads to."),
    )
    REDIRECTS_ELSEWHERE = (
        "engines.redirects-elsewhere",
        _("HTTP {status}: the address redirects elsewhere; enter the one it leads to."),
    )
    BAD_RANGE = "engines.bad-range", _("The answer to {path} has the Content-Range {text!r}.")
    WEB_PAGE = "engines.web-page", _("The answer to {path} is a web page, not JSON.")
    TOO_LARGE = "engines.too-large", _("The answer to {path} is larger than {limit} bytes.")
    NOT_JSON = "engines.not-json", _("The answer is not JSON: {error}")
    NOT_A_NUMBER = "engines.not-a-number", _("{text} is not a JSON number")
    NUMBER_TOO_LARGE = "engines.number-too-large", _("{text} is too large a number")
    FIELD_MISSING = "engines.field-missing", _("{where} has no field {name!r}.")
    FIELD_NULL = "engines.field-null", _("{where} is null, not {expected}.")
    FIELD_TYPE = "engines.field-type", _("{where} is {found}, not {expected}.")
    OUT_OF_RANGE = "engines.out-of-range", _("{where} is out of range.")
    NOT_AN_IDENTIFIER = "engines.not-an-identifier", _("{where} is not an identifier.")
    NOT_A_LIST = "engines.not-a-list", _("{where} is not a list.")
    TOO_DEEP = "engines.too-deep", _("{where} is nested more than {most} deep.")
    NOT_A_JOB_STATE = "engines.not-a-job-state", _("{value!r} is not a job state.")
    NOT_A_CHECKPOINT_ID = "engines.not-a-checkpoint-id", _("{value} is not a checkpoint id.")
    NOT_ONE_OF = "engines.not-one-of", _("{name} {value!r} is none of {allowed}.")
    WITHOUT_RESULT = "engines.without-result", _("The operation is COMPLETED without a result.")
    FLAG = "engines.flag", _("true or false")
    NUMBER = "engines.number", _("a number")
    WHOLE_NUMBER = "engines.whole-number", _("a whole number")
    TEXT = "engines.text", _("a text")
    TIME = "engines.time", _("a time")
    LIST = "engines.list", _("a list")
    TEXTS = "engines.texts", _("a list of texts")
    OBJECT = "engines.object", _("an object")
