"""The process of the demo: it writes the flights, serves the register, and submits the jobs to the job manager.

python -m dashboard.demo.service --port 8090
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
from pathlib import Path

import django

from checkpointing.clock import SystemClock
from dashboard.demo.feeder import Feeder
from dashboard.demo.input import read_planes
from dashboard.demo.registry_service import RegistryServer
from dashboard.demo.schedule import condition_at
from dashboard.stack.ports import LOOPBACK
from dashboard.stack.record import write_private

_RETRY_S = 2.0
_log = logging.getLogger("demo")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from django.conf import settings

    serve(settings.VAR_DIR / "demo", port, os.environ["DATABASE_URL"])


def serve(directory: Path, port: int, database: str) -> None:
    """Run the feeder, the register and the submission of the jobs until SIGTERM or SIGINT."""
    clock = SystemClock()
    begun = clock.monotonic()
    server = RegistryServer((LOOPBACK, port), read_planes(), lambda: condition_at(clock.monotonic() - begun))
    directory.mkdir(parents=True, exist_ok=True)
    connections = directory / "connections.json"
    url = f"http://{LOOPBACK}:{server.port}"
    # The jobs read this file at every start, because addresses may change, but a job's arguments do not.
    write_private(connections, json.dumps({"database": database, "register": url}) + "\n")

    def stop(*_: object) -> None:
        server.stopping.set()
        threading.Thread(target=server.shutdown).start()  # shutdown() waits for the interrupted loop

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    feeder = Feeder(directory / "input" / "flights", clock)
    threads = [
        threading.Thread(target=feeder.run, args=(server.stopping,), name="feeder"),
        threading.Thread(
            target=seed, args=(directory / "input" / "flights", connections, url, server.stopping), name="seed"
        ),
    ]
    for thread in threads:
        thread.start()
    server.serve_forever(poll_interval=0.2)
    server.server_close()
    for thread in threads:
        thread.join()


def seed(input_directory: Path, connections: Path, url: str, stop: threading.Event) -> None:
    """Submit the missing jobs. Retry until the job manager has accepted them."""
    from django.db import OperationalError, close_old_connections

    from dashboard.demo.seed import Demo, embedded_cluster, submit_missing
    from monitoring.engine.errors import EngineError

    demo = Demo(input_directory, connections, webhook_url=f"{url}/webhooks")
    last_error = ""
    while not stop.is_set():
        try:
            cluster = embedded_cluster()
            submitted = submit_missing(demo, cluster)
        except (EngineError, OperationalError) as error:
            if str(error) != last_error:
                last_error = str(error)
                _log.info("the demo's jobs wait for the job manager", extra={"why": last_error})
            stop.wait(_RETRY_S)
            continue
        for name in submitted:
            _log.info("job submitted", extra={"job": name})
        break
    close_old_connections()


if __name__ == "__main__":
    main()
