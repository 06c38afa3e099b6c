"""All settings, read from environment variables. docs/configure.md lists the variables.

Secrets and addresses can also be read from a file: `NAME_FILE` is the path of the file.
"""

from __future__ import annotations

import os
import re
import ssl
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.conf.locale import LANG_INFO
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import to_language
from environs import Env, validate

from checkpointing.storage.errors import StorageError
from checkpointing.storage.locations import canonical
from monitoring.notify.mail.address import BadServerAddress, ServerAddress, parse_server
from monitoring.outbound import Exemption, parse_exemptions

env = Env(eager=False)  # invalid values are read as None, and `seal` reports all of them

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env.str("WAYMARK_VAR", str(BASE_DIR / "var"))).absolute()


def _text(name: str, default: str) -> str:
    """Return the content of the file in `name`_FILE, else the variable `name`, else `default`."""
    file = os.environ.get(f"{name}_FILE")
    if file:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: {file!r} is not allowed; {error.strerror}") from error
    return str(env.str(name, default))


def _sealing_keys(name: str, text: str) -> list[str]:
    keys = [key for key in (part.strip() for part in text.split(",")) if key]
    for place, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            allowed = "32 bytes as URL-safe base64: `manage.py secrets new-key` prints one"
            raise ImproperlyConfigured(f"{name}: key {place} of {len(keys)} is not allowed; {allowed}") from None
    return keys


def _exemptions(name: str, text: str) -> tuple[Exemption, ...]:
    try:
        return parse_exemptions(text.split(","))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def _mail_server(name: str, text: str) -> ServerAddress:
    try:
        return parse_server(text)
    except BadServerAddress as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def _authorities(name: str) -> str:
    """Return the PEM certificates of the file that the variable names, or "" if it is not set."""
    path = env.str(name, "")
    if not path:
        return ""
    try:
        pem = Path(path).read_text()
        ssl.create_default_context().load_verify_locations(cadata=pem)
    except (OSError, ValueError) as error:
        allowed = "a file of certificates in PEM is needed"
        raise ImproperlyConfigured(f"{name}: {path!r} is not allowed; {allowed} ({error})") from None
    return pem


def _locations(name: str) -> list[str]:
    """Return the absolute paths (except `/`) and addresses in the variable, which are separated by commas."""
    locations = [part.strip() for part in str(env.str(name, "")).split(",") if part.strip()]
    for location in locations:
        if not re.fullmatch(r"(file:)?/+[^/].*|(?!file:)[a-z][a-z0-9+.-]*://[^/@]+(/.*)?", location):
            allowed = "an absolute path below /, or an address without credentials, such as s3://bucket/flink"
            raise ImproperlyConfigured(f"{name}: {location!r} is not allowed; use {allowed}")
    return locations


def _location(name: str, default: str) -> str:
    """Return a path or an address of storage in its canonical form."""
    text = str(env.str(name, default))
    try:
        return canonical(text)
    except StorageError as error:
        raise ImproperlyConfigured(f"{name} is not allowed; {error}") from None


DEBUG = env.bool("WAYMARK_DEBUG", False)
# Commands that serve no pages (help, doctor, tests) need no secret. Servers get one from `up` or from their operator.
_secret_key = _text("WAYMARK_SECRET_KEY", "")
SECRET_KEY_IS_SECRET = bool(_secret_key)
SECRET_KEY = _secret_key or "not-a-secret-no-page-is-served-with-this-key"
# The keys that encrypt the secrets in the database: monitoring/secret.py.
WAYMARK_SECRET_KEYS = _sealing_keys("WAYMARK_SECRET_KEYS", _text("WAYMARK_SECRET_KEYS", ""))
ALLOWED_HOSTS: list[str] = env.list("WAYMARK_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("WAYMARK_TRUSTED_ORIGINS", [])
PUBLIC_URL = env.str("WAYMARK_PUBLIC_URL", "http://127.0.0.1:8000")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_htmx",
    "ninja",  # serves the files of the API's documentation page, which would otherwise come from another host
    "monitoring",
    "dashboard",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # the random bytes in each response hide the length of secrets
    "dashboard.middleware.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "dashboard.middleware.chosen_language",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboard.access.sessions.enforce_session_rules",
    "dashboard.access.sessions.refuse_other_account",
    "dashboard.middleware.bounded_body",
    "dashboard.api.middleware.api_middleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "dashboard.access.guard.guard",
    "dashboard.api.parameters.known_parameters",
    "django.contrib.messages.middleware.MessageMiddleware",
    "dashboard.middleware.handle_expired_session",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "dashboard.urls"
WSGI_APPLICATION = "dashboard.wsgi.application"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "fleet"
LOGOUT_REDIRECT_URL = "login"

TEMPLATES = [
    {
        "BACKEND": "dashboard.templating.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.access.guard.permission_context",
            ],
        },
    },
]

DATABASES = {
    "default": {
        **(env.dj_db_url("DATABASE_URL", _text("DATABASE_URL", "postgresql://waymark@127.0.0.1:5432/waymark")) or {}),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }
}
# Detect a PostgreSQL server that disappears without closing connections. libpq alone may wait for many minutes.
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    **(DATABASES["default"].get("OPTIONS") or {}),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]

LANGUAGE_CODE = "en"
LANGUAGE_COOKIE_AGE = 365 * 86_400
LANGUAGE_COOKIE_SAMESITE = "Lax"
LOCALE_PATHS = [BASE_DIR / "dashboard" / "locale"]
# English, and one language per catalogue.
LANGUAGES = [
    (code, LANG_INFO[code]["name_local"])
    for code in (LANGUAGE_CODE, *sorted(to_language(each.parts[-3]) for each in LOCALE_PATHS[0].glob("*/*/django.mo")))
]
TIME_ZONE = env.str("WAYMARK_TIME_ZONE", "UTC")
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
# Serve static files from the packages and dashboard/static, without a build or collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
_email = _mail_server("EMAIL_URL", _text("EMAIL_URL", "smtp://127.0.0.1:8025"))
EMAIL_HOST, EMAIL_PORT = _email.host, _email.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _email.user, _email.password
EMAIL_USE_TLS, EMAIL_USE_SSL = _email.use_tls, _email.use_ssl
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("WAYMARK_MAIL_FROM", "Waymark <waymark@localhost>")
# The directory in which the embedded mail sink stores mails, or None if a real server sends them.
MAILBOX_DIR = None if _text("EMAIL_URL", "") and not os.environ.get("WAYMARK_MAILBOX") else VAR_DIR / "mail"

# The receivers of the default channels, which dashboard/stack/setup.py creates.
ALERT_MAIL: list[str] = env.list("WAYMARK_ALERT_MAIL", ["admin@localhost"] if MAILBOX_DIR else [])
ALERT_WEBHOOK = env.str("WAYMARK_ALERT_WEBHOOK", "")
ALERT_WEBHOOK_SECRET = _text("WAYMARK_ALERT_WEBHOOK_SECRET", "")
# How long messages and delivery attempts are retained after their incidents are resolved.
MESSAGES_KEPT = timedelta(days=env.int("WAYMARK_MESSAGES_KEPT", 90, validate=validate.Range(min=1, max=3650)) or 90)

CSRF_FAILURE_VIEW = "dashboard.views.session.csrf_failure"
SESSION_COOKIE_HTTPONLY = True
# The time without use and the longest duration after which a session ends: dashboard/access/sessions.py.
SESSION_COOKIE_AGE = 86_400 * (env.int("WAYMARK_SESSION_IDLE_DAYS", 14, validate=validate.Range(min=1, max=365)) or 14)
SESSION_LONGEST_S = 86_400 * (env.int("WAYMARK_SESSION_DAYS", 30, validate=validate.Range(min=1, max=365)) or 30)
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = PUBLIC_URL.startswith("https://")
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# Django sends this header only over secure connections.
SECURE_HSTS_SECONDS = 365 * 86_400 if PUBLIC_URL.startswith("https://") else 0
if env.bool("WAYMARK_BEHIND_TLS_PROXY", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    # The redirect needs a proxy that sets the header: without it, every request would be redirected endlessly. Probes
    # of this machine and of load balancers have no TLS.
    SECURE_SSL_REDIRECT = PUBLIC_URL.startswith("https://")
    SECURE_SSL_HOST = urlsplit(PUBLIC_URL).netloc or None
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^health$", r"^metrics$"]
# The number of proxies before Waymark. This number of entries at the end of X-Forwarded-For is trusted.
TRUSTED_PROXIES = env.int("WAYMARK_TRUSTED_PROXIES", 0, validate=validate.Range(min=0, max=10))

# Log-in through a provider of OpenID Connect: docs/access.md.
OIDC_ISSUER = env.str("WAYMARK_OIDC_ISSUER", "")
OIDC_CLIENT_ID = env.str("WAYMARK_OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = _text("WAYMARK_OIDC_CLIENT_SECRET", "")
OIDC_NAME = env.str("WAYMARK_OIDC_NAME", "Single sign-on")
OIDC_SCOPES: list[str] = env.list("WAYMARK_OIDC_SCOPES", ["openid", "profile", "email"])
OIDC_GROUPS_CLAIM = env.str("WAYMARK_OIDC_GROUPS_CLAIM", "groups")
OIDC_ADMIN_GROUPS: list[str] = env.list("WAYMARK_OIDC_ADMIN_GROUPS", [])
OIDC_OPERATOR_GROUPS: list[str] = env.list("WAYMARK_OIDC_OPERATOR_GROUPS", [])
OIDC_VIEWER_GROUPS: list[str] = env.list("WAYMARK_OIDC_VIEWER_GROUPS", [])
OIDC_FIRST_ROLE = env.str(
    "WAYMARK_OIDC_FIRST_ROLE", "viewer", validate=validate.OneOf(["viewer", "operator", "nothing"])
)
X_FRAME_OPTIONS = "DENY"

CELERY_BROKER_URL = _text("REDIS_URL", "redis://127.0.0.1:6379/0")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = 300
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# No process sends commands to a worker through Redis. With the connection for commands, a worker that loses Redis may
# fail, because Celery closes the worker's connections in an order that raises AttributeError.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
# A task that runs while Redis is lost continues, because its results are in PostgreSQL.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 600, "socket_timeout": 10, "socket_connect_timeout": 5}
CELERY_BEAT_SCHEDULER = "dashboard.beat.scheduler:LeasedScheduler"
CELERY_TASK_SERIALIZER = "json"
CELERY_TIMEZONE = "UTC"


def _every(task: str, seconds: float) -> dict[str, object]:
    # No `expires`: it is a wall-clock time, so a worker whose clock is ahead would drop every task. Beat limits the
    # number of waiting tasks.
    return {"task": task, "schedule": timedelta(seconds=seconds)}


RECOVERY_EVERY = timedelta(seconds=1)
CELERY_BEAT_SCHEDULE = {
    "poll": _every("monitoring.tasks.poll_clusters", 1.0),
    "discoveries": _every("monitoring.tasks.watch_discoveries", 15.0),
    "rules": _every("monitoring.tasks.evaluate_rules", 5.0),
    "objectives": _every("monitoring.tasks.measure_objectives", 30.0),
    "notify": _every("monitoring.tasks.deliver_notifications", 3.0),
    "savepoints": _every("monitoring.tasks.advance_savepoints", 2.0),
    "programs": _every("monitoring.tasks.keep_programs", 30.0),
    "retention": _every("monitoring.tasks.apply_retention", 300.0),
    "recovery": _every("monitoring.tasks.advance_recovery", RECOVERY_EVERY.total_seconds()),
    "partitions": _every("monitoring.tasks.keep_partitions", 600.0),
    "archive": _every("monitoring.tasks.archive_history", 600.0),
    "history": _every("monitoring.tasks.keep_history_pipeline", 15.0),
    "state": _every("monitoring.tasks.answer_state_reads", 2.0),
    "job-defaults": _every("monitoring.tasks.apply_job_defaults", 30.0),
    "inventory": _every("dashboard.tasks.apply_inventory", 15.0),
    "dead-man": _every("monitoring.tasks.ping_dead_man", 60.0),
}

# Self-monitoring: the longest time without a poll, the URL that gets a heartbeat every minute, and the token for
# requests of /metrics from other machines.
BLIND_AFTER_S = env.float("WAYMARK_BLIND_AFTER", 60.0)
DEAD_MAN_URL = _text("WAYMARK_DEAD_MAN_URL", "")
METRICS_TOKEN = _text("WAYMARK_METRICS_TOKEN", "")

# Directories of state in which the workers may check snapshots and delete savepoints.
STATE_ROOTS = _locations("WAYMARK_STATE_ROOTS")
# The time in addition to the leader's lease before recovery acts on a Flink cluster with high availability whose job
# store cannot be read: the next leader may resume a job that seemed dead.
HA_MARGIN = timedelta(seconds=env.int("WAYMARK_HA_MARGIN", 30, validate=validate.Range(min=0, max=240)))
# The largest program that a page accepts. A copy is stored in the database.
WAYMARK_MAX_PROGRAM_MB = env.int("WAYMARK_MAX_PROGRAM_MB", 100)
# The time that a partition of the history covers.
HISTORY_PARTITION = env.str("WAYMARK_HISTORY_PARTITION", "week", validate=validate.OneOf(("day", "week")))
# How long rows of the history stay in PostgreSQL. Rules and backtests read up to a month of them.
HISTORY_KEPT = timedelta(days=env.int("WAYMARK_HISTORY_KEPT", 90, validate=validate.Range(min=35, max=36_500)) or 90)
# The Spark master that archives; empty: local. Job managers read the same variable for their jobs.
SPARK_MASTER = _text("SPARK_MASTER_URL", "")
# The archive for older rows, its retention (0: unlimited), and the retention of hourly roll-ups.
ARCHIVE = _location("WAYMARK_ARCHIVE", str(VAR_DIR / "archive"))
ARCHIVE_KEPT = timedelta(days=env.int("WAYMARK_ARCHIVE_KEPT", 0, validate=validate.Range(min=0, max=36_500)) or 0)
_hours_kept = env.int("WAYMARK_HOURS_KEPT", None, validate=validate.Range(min=35, max=36_500))
HOURS_KEPT = timedelta(days=_hours_kept) if _hours_kept else None  # None: history/forgetting.py decides

# Whether a job of the embedded job manager computes roll-ups, and its interval: monitoring/history_job.py.
HISTORY_PIPELINE = env.bool("WAYMARK_HISTORY_PIPELINE", False)
HISTORY_EVERY_S = env.int("WAYMARK_HISTORY_EVERY", 60, validate=validate.Range(min=1, max=3600)) or 60

# Configuration as YAML: the directory of the secrets that it may name, and the inventory file that workers apply.
CODE_SECRETS = env.str("WAYMARK_CODE_SECRETS", "")
INVENTORY = env.str("WAYMARK_INVENTORY", "")

# The job manager that `up` starts, and the token that it requires. It is registered as a cluster.
EMBEDDED_CLUSTER_URL = env.str("WAYMARK_EMBEDDED_CLUSTER_URL", "")
JOBMANAGER_TOKEN = _text("WAYMARK_JOBMANAGER_TOKEN", "")

# The limit of calls of the REST API per user and minute, for all tokens of the user together.
API_CALLS_PER_MINUTE = env.int("WAYMARK_API_CALLS_PER_MINUTE", 600)

# Addresses to which Waymark may connect in addition to those that monitoring/outbound.py allows.
OUTBOUND_ALLOW = _exemptions("WAYMARK_OUTBOUND_ALLOW", _text("WAYMARK_OUTBOUND_ALLOW", ""))

# Certificate authorities for receivers of messages, in addition to those that this machine trusts.
CA_BUNDLE = _authorities("WAYMARK_CA_BUNDLE")

_LOG_FILTERS = (
    *("exclude_health_probe", "drop_lost_redis_traceback", "log_ended_session_as_info", "drop_refusal_traceback"),
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "structured": {
            "()": "structlog.stdlib.ProcessorFormatter",
            "processor": "ext://dashboard.logs.renderer",
            "foreign_pre_chain": "ext://dashboard.logs.pre_chain",
        }
    },
    "filters": {
        name: {"()": "django.utils.log.CallbackFilter", "callback": f"ext://dashboard.logs.{name}"}
        for name in _LOG_FILTERS
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "structured",
            "filters": [*_LOG_FILTERS],
        }
    },
    "root": {"handlers": ["stderr"], "level": env.str("WAYMARK_LOG_LEVEL", "INFO")},
    "loggers": {
        "py4j": {"level": "WARNING"},
        "kazoo": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
    },
}

env.seal()
