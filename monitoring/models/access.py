"""Accounts, roles, tokens of the REST API, stored answers to repeated calls, and failed log-ins."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.reason import Reason


class ApiToken(models.Model):
    """A user's key for the REST API, with at most the user's own rights; only a digest of its secret is stored.

    `start` is the beginning of the secret, by which people distinguish tokens. The row of a revoked or expired token
    stays, because the audit log refers to it.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    may_write = models.BooleanField(default=False)
    # The only right of such a token is that the agent in programs of Spark reports queries of this cluster with it.
    reports_for = models.ForeignKey(
        "monitoring.Cluster", on_delete=models.CASCADE, null=True, blank=True, related_name="report_tokens"
    )
    start = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the whole secret, in hexadecimal
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)  # None: the token never expires
    last_used_at = models.DateTimeField(null=True)  # with a precision of one minute
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "name"), condition=models.Q(revoked_at=None), name="one_valid_token_per_user_and_name"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user}: {self.name}"

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class IdempotentAnswer(models.Model):
    """The answer to a call with an `Idempotency-Key`, stored in the transaction of its action.

    If the call is repeated, it gets this answer and does nothing. `about`: the request that an action will send to an
    engine, committed before it is sent.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)  # digest of the method, the path and the body
    status = models.PositiveSmallIntegerField(null=True)  # None: the action is in progress or was interrupted
    body = models.BinaryField(default=bytes)
    about = models.JSONField(null=True)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="one_answer_per_user_and_key"),)

    def __str__(self) -> str:
        return f"{self.user}: {self.key}"


class Account(models.Model):
    """Fields of a user in addition to Django's. Without a row, all have their defaults.

    Django's flags store the account's global role: `is_superuser` administrator, `is_staff` operator, else viewer.
    `granted_only`: it has no global role, and sees only what its grants allow.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="account")
    granted_only = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=64, blank=True, default="")  # empty: the browser's time zone
    # Sessions that began before this time are invalid.
    signed_out_at = models.DateTimeField(null=True)
    # The account's identity at its OpenID Connect provider; empty: a local account.
    oidc_issuer = models.CharField(max_length=300, blank=True, default="")
    oidc_subject = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("oidc_issuer", "oidc_subject"),
                condition=~models.Q(oidc_subject=""),
                name="one_account_per_subject_of_a_provider",
            ),
        )

    def __str__(self) -> str:
        return str(self.user)


class GrantedRole(models.TextChoices):
    VIEWER = "viewer", _("viewer")
    OPERATOR = "operator", _("operator")


class Grant(models.Model):
    """A role on one cluster with its jobs, or on the jobs that `selector` (monitoring.alerts.selector) chooses."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=10, choices=GrantedRole.choices, default=GrantedRole.VIEWER)
    cluster = models.ForeignKey("monitoring.Cluster", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    selector = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ("user", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "cluster", "selector"), nulls_distinct=False, name="one_grant_per_user_and_scope"
            ),
            models.CheckConstraint(
                condition=models.Q(cluster=None, selector__gt="") | models.Q(cluster__isnull=False, selector=""),
                name="a_grant_has_one_scope",
            ),
        )

    def __str__(self) -> str:
        return f"{self.role} of {self.user}"

    @property
    def scope(self) -> Reason:
        if self.cluster is not None:
            return AlertReason.OF_CLUSTER(cluster=self.cluster.name)
        return AlertReason.OF_JOBS_WITH(labels=self.selector)


class LogInFailure(models.Model):
    """A failed log-in, stored for as long as it counts towards the limit of failures.

    `name_digest` is the digest of the typed user name, which may be a password. `address` is the client's, if known;
    for IPv6 it is the /64 network.
    """

    name_digest = models.CharField(max_length=64)
    has_account = models.BooleanField()
    address = models.CharField(max_length=64)
    known_device = models.BooleanField(default=False)  # a browser from which the user has logged in before
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = (
            models.Index(fields=("name_digest", "-at"), name="failures_of_a_name"),
            models.Index(fields=("address", "-at"), name="failures_of_an_address"),
        )

    def __str__(self) -> str:
        return f"{self.name_digest[:8]} from {self.address}"
