"""The Django project: settings, pages, charts, static files, and management commands."""

from dashboard.celery import app as celery_app

__all__ = ["celery_app"]
