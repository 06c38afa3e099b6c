"""One worker process of the polling benchmark: what a Celery worker loads, and its ticks, without a broker.

`plain` instead makes concurrent GETs of given addresses and nothing else: what the worker is compared to.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time

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
    monitoring.tasks.polls_are_given_back()


async def get(urls: list[str], at_once: int, seconds: float) -> tuple[int, float]:
    """How many answers came, and the processor seconds they took."""
    done, until = 0, time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one_after_another(first: int) -> None:
            nonlocal done
            place = first
            while time.monotonic() < until:
                async with session.get(urls[place % len(urls)]) as answer:
                    await answer.read()
                done += 1
                place += at_once

        before = time.process_time()
        await asyncio.gather(*(one_after_another(number) for number in range(at_once)))
        return done, time.process_time() - before


if __name__ == "__main__":
    if sys.argv[1] == "poll":
        poll()
    else:
        given = json.load(sys.stdin)
        print(json.dumps(asyncio.run(get(given["urls"], given["at_once"], given["seconds"]))))
