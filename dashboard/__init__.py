"""The Django project: settings, pages, charts, static files, and the commands that run it all."""

from dashboard.celery import app as celery_app

__all__ = ["celery_app"]
