from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from dashboard.demo.registry_service import WEBHOOKS_KEPT, RegistryServer
from dashboard.demo.schedule import CYCLE_S, SPELLS, Condition, condition_at

PLANES = {"N1": {"tailnum": "N1", "manufacturer": "BOEING", "seats": 149}}


class Register:
    def __init__(self) -> None:
        self.condition = Condition.FINE
        self.server = RegistryServer(("127.0.0.1", 0), PLANES, lambda: self.condition)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.http = requests.Session()
        self.http.trust_env = False

    def get(self, path: str) -> requests.Response:
        return self.http.get(self.url + path, timeout=10)

    def post(self, path: str, **content: Any) -> requests.Response:
        return self.http.post(self.url + path, timeout=10, **content)


@pytest.fixture
def register() -> Iterator[Register]:
    made = Register()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.close()
    made.server.stopping.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_aircraft_are_looked_up_one_or_many_at_a_time(register: Register) -> None:
    assert register.get("/aircraft/N1").json() == PLANES["N1"]
    assert register.get("/aircraft/N2").status_code == 404
    assert register.post("/aircraft", json=["N1", "N2"]).json() == {"N1": PLANES["N1"]}


@pytest.mark.parametrize("body", [b"{", b'{"N1": 1}', b"[1]", b""])
def test_a_body_that_is_not_a_list_of_tail_numbers_is_refused(register: Register, body: bytes) -> None:
    assert register.post("/aircraft", data=body).status_code == 400


def test_a_broken_register_returns_500_but_passes_its_health_check(register: Register) -> None:
    register.condition = Condition.BROKEN
    assert register.post("/aircraft", json=["N1"]).status_code == 500
    assert register.get("/aircraft/N1").status_code == 500
    assert register.get("/health").json() == {"condition": "broken"}


def test_a_slow_register_answers_late_but_at_once_when_it_stops(register: Register) -> None:
    register.condition = Condition.SLOW
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(register.post("/aircraft", json=["N1"]).status_code))
    asking.start()
    asking.join(0.5)
    assert answers == []
    register.server.stopping.set()
    asking.join(10)
    assert answers == [200]


def test_only_the_newest_webhooks_are_kept_newest_first(register: Register) -> None:
    for number in range(WEBHOOKS_KEPT + 5):
        assert register.post("/webhooks", json={"number": number}, headers={"X-Signature": "s"}).status_code == 200
    kept = register.get("/webhooks").json()
    assert len(kept) == WEBHOOKS_KEPT
    assert kept[0]["body"] == {"number": WEBHOOKS_KEPT + 4}
    assert kept[0]["headers"]["X-Signature"] == "s"


def test_the_schedule_is_the_documented_one_and_repeats() -> None:
    for elapsed, condition in [
        (0, "fine"),
        (45, "slow"),
        (84.9, "slow"),
        (85, "fine"),
        (105, "broken"),
        (225, "broken"),
    ]:
        assert condition_at(elapsed).value == condition
        assert condition_at(elapsed + 3 * CYCLE_S).value == condition


def test_within_five_minutes_it_is_slow_and_breaks_twice() -> None:
    """The job's restart strategy allows one restart. After the second failure, Waymark restarts the job."""
    early = [spell.condition for spell in SPELLS if spell.end_s <= 300]
    assert early.count(Condition.BROKEN) == 2
    assert Condition.SLOW in early


def test_slow_and_broken_periods_do_not_overlap() -> None:
    assert all(earlier.end_s <= later.begin_s for earlier, later in itertools.pairwise(SPELLS))
