"""A real SMTP server, as the tests of alerts have it."""

from tests.monitoring.alerts.conftest import mail_sink

__all__ = ["mail_sink"]
