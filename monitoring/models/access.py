"""Who may use Waymark beside a log-in with a password: tokens of the REST API, and what was answered to its calls."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_noop as _


class ApiToken(models.Model):
    """A user's key for the REST API, with at most the user's own rights; only a digest of its secret is stored.

    `start` is the secret's beginning, for people to tell tokens apart. A token that was revoked or has expired stays
    as a row: the audit names it.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    may_write = models.BooleanField(default=False)
    start = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256, in hex, of the whole secret
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)  # None: never
    last_used_at = models.DateTimeField(null=True)  # to the minute
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
    """What a call with an `Idempotency-Key` was answered, written in the transaction of its act: the same call again
    gets this and does nothing. `about`: what an act that asks an engine is about to ask, committed before it does."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)  # of the method, the path and the body
    status = models.PositiveSmallIntegerField(null=True)  # None: the act is under way, or was cut off
    body = models.BinaryField(default=bytes)
    about = models.JSONField(null=True)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="one_answer_per_user_and_key"),)

    def __str__(self) -> str:
        return f"{self.user}: {self.key}"


class Account(models.Model):
    """What Waymark knows of a user beyond Django's own fields. No row: everything as by default.

    The role that an account has everywhere is in Django's flags: `is_superuser` administrator, `is_staff` operator,
    else viewer. `granted_only`: it has none, and sees only what its grants name.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="account")
    granted_only = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=64, blank=True, default="")  # empty: the server's
    # Sessions that began before then are over.
    signed_out_at = models.DateTimeField(null=True)
    # Who it is at the provider that logged it in; empty: an account of Waymark's own.
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
        return f"{self.get_role_display()} on {self.scope}"

    @property
    def scope(self) -> str:
        return f"cluster {self.cluster.name}" if self.cluster else f"jobs with {self.selector}"


class LogInFailure(models.Model):
    """A log-in that failed, for as long as it counts against further ones.

    `name_digest`: of what was typed as the user name, which may be a password. `address`: the client's as far as it is
    known, of IPv6 its /64.
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
