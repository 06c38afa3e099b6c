"""The fixtures of tests/monitoring/notify: a real SMTP server."""

from tests.monitoring.notify.conftest import mail_sink

__all__ = ["mail_sink"]
