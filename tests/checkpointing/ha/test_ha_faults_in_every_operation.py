"""Each operation of the stores, repeated for every point at which its connection or session can be lost.

The proxy counts the requests of an undisturbed run. Then the operation runs twice for each request: once the request is
lost before the server receives it, and once it is executed without an answer.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from checkpointing.clock import SystemClock
from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.attempts import ZooKeeperAttemptRegistry
from checkpointing.ha.checkpoint_id_counter import ZooKeeperCheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore, handle_name
from checkpointing.ha.errors import AttemptTaken, CounterUnavailable, HighAvailabilityError, LeadershipLost
from checkpointing.ha.job_graphs import HandleJobGraphStore
from checkpointing.ha.job_results import FileJobResultStore, JobResult
from checkpointing.ha.leadership import LeaderInformation
from checkpointing.ha.services import ZooKeeperServices
from checkpointing.ha.zookeeper import Create, ZooKeeperConnection
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO, LATCH, ZooKeeperLeaderElection
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus
from tests.checkpointing.ha.leader_process import JOB_ID, checkpoint_at
from tests.checkpointing.ha.zookeeper_fault_proxy import Loss, Point, ZooKeeperFaultProxy

pytestmark = pytest.mark.zookeeper

HANDLES = f"jobs/{JOB_ID}/checkpoints"
COUNTER = f"jobs/{JOB_ID}/checkpoint_id_counter"
TERM = "term"
GRAPH = JobGraph(JOB_ID, "wordcount", "1_wordcount.py", "wordcount:main")
AT_ONCE = 12
FAR = 1 << 20  # a request that is never made


class JobManagerBehindProxy:
    """A leading job manager behind the proxy, and an observer with an undisturbed connection."""

    def __init__(self, hosts, directory, *, term_ends_with_the_session):
        self.root = f"/test-{uuid.uuid4().hex}"
        self.directory = directory / self.root[1:]
        self.proxy = ZooKeeperFaultProxy(hosts)
        self.connection = ZooKeeperConnection(self.proxy.address, self.root, session_timeout_s=10.0)
        self.observer = ZooKeeperConnection(hosts, self.root, session_timeout_s=10.0)
        for connection in (self.connection, self.observer):
            connection.start()
        holder = self.connection if term_ends_with_the_session else self.observer
        holder.commit([Create(TERM, ephemeral=True)])
        self.holders = []
        self.election = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.election is not None:
            self.election.close()
        self.connection.close()
        self.observer.close()
        self.proxy.close()

    def handles(self, path=HANDLES):
        return self._held(ZooKeeperStateHandleStore(self.connection, path, lambda: TERM))

    def seen(self, path=HANDLES):
        """Return the observer's view of the handles, which needs no leadership."""
        return self._held(ZooKeeperStateHandleStore(self.observer, path))

    def _held(self, handles):
        self.holders.append(handles)
        return handles

    def store(self, num_retained=1, holding=()):
        """Return a store to which checkpoints with the IDs `holding` were added."""
        store = HandleCompletedCheckpointStore(self.handles(), num_retained, checkpoint_at)
        for number in holding:
            store.add_checkpoint(checkpoint(number))
        return store

    def counter(self):
        return ZooKeeperCheckpointIDCounter(self.connection, COUNTER, lambda: TERM)

    def graphs(self):
        return HandleJobGraphStore(self.handles("execution-plans"), self.directory)

    def leading(self):
        """Return a contender that leads and has published its address."""
        contender = Elected(self.connection)
        self.election = contender.election
        contender.election.start(contender)
        until(lambda: contender.is_found_with(self.observer))
        return contender

    @property
    def stored(self):
        """Return the IDs of the checkpoints that the next leader would find."""
        return [int(name) for name in self.observer.children(HANDLES)]

    @property
    def locks(self):
        return [
            (name, lock) for name in self.observer.children(HANDLES) for lock in self.observer.children(locks_of(name))
        ]


class Elected:
    """A contender that confirms each term, and records all events."""

    def __init__(self, connection):
        self.election = ZooKeeperLeaderElection(connection, SystemClock())
        self.events = []
        self.terms = []

    def grant_leadership(self, session_id):
        self.events.append("granted")
        self.terms.append(session_id)
        self.election.confirm_leadership(session_id, "http://127.0.0.1:1")

    def revoke_leadership(self):
        self.events.append("revoked")

    def on_error(self, error):
        self.events.append(error)

    def on_fatal_error(self, error):
        self.events.append(error)

    def is_found_with(self, connection):
        found = ZooKeeperLeaderRetrieval(connection, SystemClock()).current()
        return (
            found is not None
            and self.election.has_leadership(found.session_id)
            and found == LeaderInformation("http://127.0.0.1:1", self.terms[-1])
        )


def until(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def locks_of(name):
    return f"{HANDLES}/{name}/locks"


def checkpoint(number):
    return checkpoint_at(f"/checkpoints/chk-{number}")


@dataclass
class Outcome:
    value: object = None
    error: Exception | None = None

    @property
    def is_known(self):
        return not isinstance(self.error, PossibleInconsistentState)


def outcome_of(act):
    try:
        return Outcome(value=act())
    except (HighAvailabilityError, PossibleInconsistentState) as error:
        return Outcome(error=error)


@dataclass
class Operation:
    """An operation under test.

    `prepare(manager)` returns the argument of `act`. `check(manager, subject, outcome)` asserts what must
    hold afterwards.
    """

    name: str
    prepare: Callable
    act: Callable
    check: Callable
    outlives_a_break: bool = True
    shares_its_connection: bool = False
    """True for an operation with a separate thread, whose chosen request may not occur."""


def check_first_add(manager, _store, outcome):
    assert manager.stored in (([1],) if outcome.error is None else ([],) if outcome.is_known else ([], [1]))


def check_add(manager, store, outcome):
    if outcome.error is None:
        assert manager.stored == [1, 2]
    elif outcome.is_known:
        assert manager.stored == [1]
    else:
        assert manager.stored in ([1], [1, 2])
    expected = [1, 2] if outcome.error is None else [1]
    assert [kept.checkpoint_id for kept in store.checkpoints] == expected


def check_subsume(manager, _store, outcome):
    if outcome.error is not None:
        assert manager.stored in ([1], [1, 2])
        return
    assert 2 in manager.stored
    if outcome.value:
        assert manager.stored == [2], "its files go, so no handle may be left"


def check_recover(manager, store, outcome):
    assert manager.stored == [1, 2, 3]
    if outcome.error is None:
        assert [kept.checkpoint_id for kept in store.checkpoints] == [1, 2, 3]
    else:
        assert list(store.checkpoints) == []


def check_remove(manager, _handles, outcome):
    if outcome.error is None:
        assert outcome.value is True
        assert manager.stored == []
    else:
        assert manager.stored in ([], [1])


def check_replace(manager, _handles, outcome):
    found = manager.seen().get_and_lock("1")
    assert found in ((b"new",) if outcome.error is None else (b"old",) if outcome.is_known else (b"old", b"new"))


def check_finished(manager, _store, outcome):
    assert outcome.error is None, "what cannot be removed now is left to the next clean-up"
    for removed in outcome.value:
        assert removed.checkpoint_id not in manager.stored
    if len(outcome.value) < 2:
        manager.connection.wait_until_connected(10)


def check_suspended(manager, _store, outcome):
    assert outcome.error is None
    assert outcome.value == ()
    assert manager.stored == [1, 2]


def check_counter(manager, _counter, outcome):
    if outcome.error is None:
        assert outcome.value == 2
    else:
        assert isinstance(outcome.error, CounterUnavailable)
    assert ZooKeeperCheckpointIDCounter(manager.observer, COUNTER).get_and_increment() >= 2 + (outcome.error is None)


def check_counter_is_deleted(manager, _counter, outcome):
    if outcome.error is None:
        assert manager.observer.find(COUNTER) is None


def check_put(manager, _graphs, outcome):
    stored = manager.observer.children("execution-plans")
    files = list(manager.directory.glob("*.json"))
    assert stored in (([JOB_ID],) if outcome.error is None else ([],) if outcome.is_known else ([], [JOB_ID]))
    assert len(files) == (1 if outcome.error is None or not outcome.is_known else 0)


def check_put_again(manager, _graphs, outcome):
    found = HandleJobGraphStore(manager.seen("execution-plans"), manager.directory).recover(JOB_ID)
    if outcome.error is None:
        assert found.name == "second"
    elif outcome.is_known:
        assert found == GRAPH
    assert len(list(manager.directory.glob("*.json"))) == (1 if outcome.is_known else 2)


def check_recovered_graph(manager, _graphs, outcome):
    assert outcome.error is not None or outcome.value == GRAPH
    assert manager.observer.children("execution-plans") == [JOB_ID]


def check_removed_graph(manager, _graphs, outcome):
    stored = manager.observer.children("execution-plans")
    files = list(manager.directory.glob("*.json"))
    if outcome.error is None:
        assert (stored, files) == ([], [])
    assert len(files) >= len(stored), "a handle always has its file"


def check_cleaned(manager, _services, outcome):
    assert outcome.error is None
    assert manager.observer.children("jobs") == []


def prepared_clean_up(manager):
    manager.store(2, holding=[1, 2])
    manager.counter().get_and_increment()
    return ZooKeeperServices(manager.connection, manager.directory, checkpoint_at, None, SystemClock())


def prepared_graphs(manager):
    graphs = manager.graphs()
    graphs.put(GRAPH)
    return graphs


def prepared_handle(manager):
    handles = manager.handles()
    handles.add_and_lock("1", b"old")
    return handles


def prepared_recovery(manager):
    manager.store(3, holding=[1, 2, 3]).shutdown(JobStatus.SUSPENDED)
    return manager.store(3)


def prepared_counter(manager):
    counter = manager.counter()
    assert counter.get_and_increment() == 1
    return counter


def check_held(manager, registry, outcome):
    living = ZooKeeperAttemptRegistry(manager.observer, SystemClock())
    if outcome.error is not None:
        assert not isinstance(outcome.error, AttemptTaken), "nobody else took part"
        return
    held = outcome.value
    # A successful hold is valid, unless the server ended the session: then the holder must notice the loss.
    until(lambda: held.lost or living.holder(JOB_ID) == 1)
    held.release()
    assert living.wait_until_free(JOB_ID, 30) or held.lost


def check_released(manager, held, outcome):
    assert outcome.error is None
    assert ZooKeeperAttemptRegistry(manager.observer, SystemClock()).wait_until_free(JOB_ID, 30)


def check_result(manager, _elected, outcome):
    results = FileJobResultStore(manager.directory / "results")
    assert results.has_result(JOB_ID) is (outcome.error is None)
    assert len(list((manager.directory / "results").iterdir())) == (1 if outcome.error is None else 0)


def record_result(manager, elected):
    result = JobResult(JOB_ID, "wordcount", JobStatus.CANCELED, 1, 2)
    confirm = partial(elected.election.confirm_term, elected.terms[-1])
    FileJobResultStore(manager.directory / "results").create_dirty_result(result, confirm)


OPERATIONS = [
    Operation(
        "add the first", lambda s: s.store(2), lambda store: store.add_checkpoint(checkpoint(1)), check_first_add
    ),
    Operation("add", lambda s: s.store(2, holding=[1]), lambda store: store.add_checkpoint(checkpoint(2)), check_add),
    Operation(
        "add and subsume",
        lambda s: s.store(1, holding=[1]),
        lambda store: store.add_checkpoint(checkpoint(2)),
        check_subsume,
    ),
    Operation("recover", prepared_recovery, lambda store: store.recover(), check_recover),
    Operation("remove", prepared_handle, lambda handles: handles.release_and_try_remove("1"), check_remove),
    Operation("replace", prepared_handle, lambda handles: handles.replace("1", b"new"), check_replace),
    Operation(
        "finish",
        lambda s: s.store(2, holding=[1, 2]),
        lambda store: store.shutdown(JobStatus.FINISHED),
        check_finished,
    ),
    Operation(
        "suspend",
        lambda s: s.store(2, holding=[1, 2]),
        lambda store: store.shutdown(JobStatus.SUSPENDED),
        check_suspended,
    ),
    Operation("take an id", prepared_counter, lambda counter: counter.get_and_increment(), check_counter, False),
    Operation(
        "end the counter",
        prepared_counter,
        lambda counter: counter.shutdown(JobStatus.FINISHED),
        check_counter_is_deleted,
    ),
    Operation("put a graph", lambda s: s.graphs(), lambda graphs: graphs.put(GRAPH), check_put),
    Operation(
        "put a graph again",
        prepared_graphs,
        lambda graphs: graphs.put(JobGraph(JOB_ID, "second", "1_wordcount.py", "wordcount:main")),
        check_put_again,
    ),
    Operation("recover a graph", prepared_graphs, lambda graphs: graphs.recover(JOB_ID), check_recovered_graph),
    Operation("remove a graph", prepared_graphs, lambda graphs: graphs.remove(JOB_ID), check_removed_graph),
    Operation("clean up", prepared_clean_up, lambda services: services.clean_up(JOB_ID), check_cleaned),
    Operation(
        "record a result",
        lambda s: (s, s.leading()),
        lambda subject: record_result(*subject),
        check_result,
        outlives_a_break=False,
        shares_its_connection=True,
    ),
    Operation(
        "hold an attempt",
        lambda s: ZooKeeperAttemptRegistry(s.connection, SystemClock()),
        lambda registry: registry.hold(JOB_ID, 1),
        check_held,
    ),
    Operation(
        "release an attempt",
        lambda s: ZooKeeperAttemptRegistry(s.connection, SystemClock()).hold(JOB_ID, 1),
        lambda held: held.release(),
        check_released,
        shares_its_connection=True,
    ),
]


@pytest.fixture
def new_manager(zookeeper_hosts, tmp_path):
    return partial(JobManagerBehindProxy, zookeeper_hosts, tmp_path)


LOSSES = {
    "connection": (Loss.CONNECTION, True),
    "session-and-term": (Loss.SESSION, True),
    "session-alone": (Loss.SESSION, False),
}
# Normal runs have one case of each loss; `make nightly` runs all cases.
IN_EVERY_RUN = {
    ("add and subsume", "session-and-term"),
    ("put a graph again", "connection"),
    ("hold an attempt", "session-alone"),
}


@pytest.mark.parametrize(
    ("operation", "loss", "term_ends"),
    [
        pytest.param(
            *(operation, *loss),
            id=f"{operation.name}-{name}".replace(" ", "-"),
            marks=[] if (operation.name, name) in IN_EVERY_RUN else pytest.mark.nightly,
        )
        for operation, (name, loss) in itertools.product(OPERATIONS, LOSSES.items())
    ],
)
def test_an_operation_interrupted_at_any_step_loses_nothing_and_reports_its_outcome(
    new_manager, operation, loss, term_ends
):
    num_requests = count_requests(new_manager, operation)
    points = list(itertools.product(range(1, num_requests + 1), Point))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run_broken, new_manager, operation, *point, loss, term_ends) for point in points]
    errors = [(point, run.exception()) for point, run in zip(points, runs, strict=True) if run.exception()]
    assert errors == []


def count_requests(new_manager, operation):
    with new_manager(term_ends_with_the_session=True) as manager:
        subject = operation.prepare(manager)
        manager.proxy.break_at(FAR, Point.BEFORE_THE_REQUEST, Loss.CONNECTION)
        outcome = outcome_of(lambda: operation.act(subject))
        num_requests = FAR - manager.proxy.remaining
        assert outcome.error is None
        operation.check(manager, subject, outcome)
    assert num_requests > 0
    return num_requests


def run_broken(new_manager, operation, request, point, loss, term_ends):
    with new_manager(term_ends_with_the_session=term_ends) as manager:
        subject = operation.prepare(manager)
        session = manager.connection.session_id
        manager.proxy.break_at(request, point, loss)
        outcome = outcome_of(lambda: operation.act(subject))
        if not manager.proxy.broke.wait(0.1 if operation.shares_its_connection else 10):
            assert operation.shares_its_connection, "the chosen request was never made"
            return
        operation.check(manager, subject, outcome)
        assert manager.connection.wait_until_connected(20)
        if loss is Loss.SESSION:
            until(lambda: manager.connection.session_id not in (None, session))
        if loss is Loss.CONNECTION and operation.outlives_a_break:
            assert outcome.error is None, f"a short break costs nothing: {outcome.error!r}"
        if loss is Loss.SESSION and term_ends:
            refused_everywhere(manager)
        for handles in manager.holders:
            handles.release_all()
        assert manager.locks == [], "a lock that nobody gives up"


def refused_everywhere(manager):
    """Assert that all writes of the ended term are refused, although the job manager is connected again."""
    before = manager.stored
    with pytest.raises(LeadershipLost):
        HandleCompletedCheckpointStore(manager.handles(), 1, checkpoint_at).add_checkpoint(checkpoint(9))
    for name in map(handle_name, before):
        with pytest.raises(LeadershipLost):
            manager.handles().get_and_lock(name)
        with pytest.raises(LeadershipLost):
            manager.handles().release_and_try_remove(name)
    with pytest.raises(CounterUnavailable):
        manager.counter().get_and_increment()
    with pytest.raises(LeadershipLost):
        manager.graphs().put(GRAPH)
    assert manager.stored == before


@pytest.mark.parametrize("loss", [Loss.CONNECTION, pytest.param(Loss.SESSION, marks=pytest.mark.nightly)])
def test_an_election_interrupted_at_any_step_finds_a_leader_and_leaves_no_nodes(new_manager, loss):
    with new_manager(term_ends_with_the_session=True) as manager:
        manager.proxy.break_at(FAR, Point.BEFORE_THE_REQUEST, Loss.CONNECTION)
        manager.leading()
        points = list(itertools.product(range(1, FAR - manager.proxy.remaining + 1), Point))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run_broken_election, new_manager, *point, loss) for point in points]
    assert [(point, run.exception()) for point, run in zip(points, runs, strict=True) if run.exception()] == []


def owns_all_there_is(manager):
    nodes = [CONNECTION_INFO, *(f"{LATCH}/{place}" for place in manager.observer.children(LATCH))]
    owners = [node and node.owner_session for node in map(manager.observer.find, nodes)]
    return owners == [manager.connection.session_id] * 2


def run_broken_election(new_manager, request, point, loss):
    with new_manager(term_ends_with_the_session=True) as manager:
        manager.proxy.break_at(request, point, loss)
        elected = manager.leading()
        manager.proxy.broke.wait(1)
        manager.proxy.break_at(FAR, Point.BEFORE_THE_REQUEST, Loss.CONNECTION)  # no break during the next checks
        until(lambda: elected.is_found_with(manager.observer) and owns_all_there_is(manager))
        assert len(set(elected.terms)) == len(elected.terms), "each term has another session ID"
        result = ["granted", "revoked"] * len(elected.terms)
        assert elected.events == result[: len(elected.events)]
        elected.election.close()
        assert manager.observer.children(LATCH) == []
        assert manager.observer.find(CONNECTION_INFO) is None
