"""A worker process of the polling benchmark: the imports and polling ticks of a Celery worker, without a broker.

With the argument `plain`, it only sends concurrent GET requests to given URLs, for comparison.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import aiohttp


def poll() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    import dashboard.celery
    import monitoring.tasks

    dashboard.celery.app.loader.import_default_modules()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.wait(1.0):
        monitoring.tasks.poll_clusters()
    monitoring.tasks.release_polls()


# The URLs of a poll of one cluster, in parts that run one after another. A part has chains that run concurrently, and
# the URLs of a chain are requested one after another.
Flight = list[list[list[str]]]


async def get(flights: list[Flight], every_s: float, at_once: int, seconds: float) -> tuple[int, float]:
    """Return the number of responses and the CPU seconds for them. With `every_s` 0, polls follow without a pause."""
    done, until = 0, time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one_after_another(chains: Iterator[list[str]]) -> None:
            nonlocal done
            for chain in chains:
                for url in chain:
                    async with session.get(url) as answer:
                        await answer.read()
                    done += 1

        async def fly(flight: Flight, phase: float) -> None:
            begin = time.monotonic() + phase * every_s
            while begin < until:
                await asyncio.sleep(max(0.0, begin - time.monotonic()))
                for part in flight:
                    chains = iter(part)
                    await asyncio.gather(*(one_after_another(chains) for _ in range(min(at_once, len(part)))))
                begin = begin + every_s if every_s else time.monotonic()

        before = time.process_time()
        await asyncio.gather(*(fly(flight, place / len(flights)) for place, flight in enumerate(flights)))
        return done, time.process_time() - before


if __name__ == "__main__":
    if sys.argv[1] == "poll":
        poll()
    else:
        given = json.load(sys.stdin)
        print(json.dumps(asyncio.run(get(**given))))
