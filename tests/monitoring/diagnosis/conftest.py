"""A real SMTP server, as the tests of alerts have it."""

from tests.monitoring.notify.conftest import mail_sink

__all__ = ["mail_sink"]
