"""gunicorn's settings for Waymark: `gunicorn --config python:dashboard.web_server.config`.

An option on the command line takes precedence, such as `--bind`.
"""

from __future__ import annotations

wsgi_app = "dashboard.wsgi"
worker_class = "dashboard.web_server.worker.PatientWorker"
workers = 1
threads = 12
# As long as proxies and API clients keep idle connections, so that none sends a request into a connection that closes.
keepalive = 75
# Idle connections hold a file descriptor and no thread; 1,024 descriptors are a common limit.
worker_connections = 500
timeout = 60
graceful_timeout = 5
loglevel = "warning"
# A socket in the home directory that nothing uses, and that all servers of an account would share.
control_socket_disable = True
