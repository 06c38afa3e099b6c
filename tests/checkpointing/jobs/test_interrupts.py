"""Waits of a job are interrupted by requests and by the end of the term."""

from __future__ import annotations

import asyncio

import pytest

from checkpointing.jobs.interrupts import Interrupted, Interrupts, Request


class Term:
    lasts = True

    def __call__(self) -> bool:
        return self.lasts


@pytest.fixture
def term() -> Term:
    return Term()


async def interrupted(awaiting: asyncio.Task[str]) -> Request:
    with pytest.raises(Interrupted) as caught:
        await awaiting
    return caught.value.request


async def test_awaited_result_is_returned(term: Term) -> None:
    assert await Interrupts(term).wait_for(asyncio.sleep(0, "done")) == "done"


async def test_after_the_term_nothing_begins(term: Term) -> None:
    begun = []

    async def work() -> None:
        begun.append(True)

    interrupts = Interrupts(term)
    term.lasts = False

    with pytest.raises(Interrupted) as caught:
        await interrupts.wait_for(work())
    assert caught.value.request is Request.SUSPEND
    assert begun == []


async def test_result_after_the_term_does_not_count(term: Term) -> None:
    """The process was stopped in between. Its result has arrived, but another job manager leads."""
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(Interrupts(term).wait_for(outcome))
    await asyncio.sleep(0)
    term.lasts = False
    outcome.set_result("done")

    assert await interrupted(waiting) is Request.SUSPEND


@pytest.mark.parametrize("request_", list(Request))
async def test_a_request_precedes_the_result(term: Term, request_: Request) -> None:
    interrupts = Interrupts(term)
    waiting = asyncio.create_task(interrupts.wait_for(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    interrupts.request(request_)

    assert await interrupted(waiting) is request_


async def test_only_a_suspension_overrides_a_cancellation(term: Term) -> None:
    interrupts = Interrupts(term)
    waiting = asyncio.create_task(interrupts.wait_for(asyncio.get_running_loop().create_future(), cancelling=True))
    interrupts.request(Request.CANCEL)
    await asyncio.sleep(0)
    assert not waiting.done()
    interrupts.request(Request.SUSPEND)

    assert await interrupted(waiting) is Request.SUSPEND


async def test_interrupted_work_is_cancelled(term: Term) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    interrupts = Interrupts(term)
    waiting = asyncio.create_task(interrupts.wait_for(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    interrupts.request(Request.CANCEL)
    with pytest.raises(Interrupted):
        await waiting

    await asyncio.wait_for(ended.wait(), 5)
