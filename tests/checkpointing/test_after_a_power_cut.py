"""The files that the job manager needs after a restart survive a power cut at every step of writing them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from checkpointing.durable_files import write_durably
from checkpointing.ha.job_graphs import HandleJobGraphStore
from checkpointing.ha.job_results import FileJobResultStore, JobResult
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.programs import ProgramStorage
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.model.status import JobStatus
from checkpointing.storage import FileCheckpointStorage, MetadataMissing, verify
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.savepoint_intents import SavepointIntents, jobs_with_intents
from tests.power_cut import Cut, Disk

JOB_ID = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Handles(InMemoryStateHandleStore):
    """Handles as in ZooKeeper: a power cut of this machine does not change them. `Disk` can compare them."""

    handles: tuple[tuple[str, bytes], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_handles", dict(self.handles))


def survives(disk: Disk, work: Callable[[], object], check: Callable[[Cut], None]) -> None:
    """Run `work`, then call `check` for each state of the disk that a power cut could leave."""
    with disk.recorded():
        work()
    over = 0
    for cut in disk.cuts():
        try:
            check(cut)
        except Exception as error:
            when = "after it returned" if cut.is_over else f"before {cut.before}"
            raise AssertionError(f"a power cut {when}: {type(error).__name__}: {error}") from error
        over += cut.is_over
    assert over, "nothing was looked at after the work"


# --- durable_files


def test_a_file_that_is_written_durably_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_text("old")

    def check(cut: Cut) -> None:
        assert file.read_text() in (("new",) if cut.is_over else ("old", "new"))

    survives(Disk(tmp_path), lambda: write_durably(file, "new"), check)


def test_directories_created_for_a_durable_file_are_durable(tmp_path: Path) -> None:
    file = tmp_path / "jobs" / "1" / "record"

    def check(cut: Cut) -> None:
        assert file.read_text() == "new" if file.exists() or cut.is_over else True

    survives(Disk(tmp_path), lambda: write_durably(file, "new"), check)


# --- storage/files.py


def test_a_created_directory_is_durable(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b" / "c"

    def check(cut: Cut) -> None:
        assert directory.is_dir() or not cut.is_over

    survives(Disk(tmp_path), lambda: LocalFiles().make_directory(str(directory)), check)


def test_a_checkpoint_is_complete_or_has_no_metadata(tmp_path: Path) -> None:
    """Therefore no damaged directory counts as a checkpoint, and no completed checkpoint is lost."""
    storage = FileCheckpointStorage(str(tmp_path / "checkpoints"), JOB_ID)
    directory = tmp_path / "checkpoints" / JOB_ID / "chk-1"

    def take() -> None:
        location = storage.initialize_location(1, CheckpointKind.CHECKPOINT, None)
        storage.write_metadata(completed(location.directory, brought(location.directory)))

    def check(cut: Cut) -> None:
        try:
            assert verify(str(directory), deep=True).checkpoint_id == 1
        except MetadataMissing:
            assert not cut.is_over, "a completed checkpoint was lost"

    survives(Disk(tmp_path), take, check)


def test_a_savepoint_that_is_there_was_noted_before(tmp_path: Path) -> None:
    """Only a recorded savepoint can be found and removed if it is never completed."""
    intents = tmp_path / "intents"
    own = SavepointIntents(intents, JOB_ID)
    storage = FileCheckpointStorage(None, JOB_ID, intents=own)
    savepoints = tmp_path / "savepoints"

    def begin() -> None:
        storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(savepoints))
        own.abandon()

    def check(cut: Cut) -> None:
        noted = {note.read_text() for note in intents.iterdir()} if intents.exists() else set()
        begun = {f"{found}\n" for found in savepoints.iterdir()} if savepoints.exists() else set()
        assert begun <= noted
        assert jobs_with_intents(intents) == {JOB_ID} or not cut.is_over

    survives(Disk(tmp_path), begin, check)


def brought(directory: str) -> StateFile:
    """Upload a small state file as a driver does, and sync it with its directory and that directory's name."""
    files, content = LocalFiles(), b"state"
    source = Path(directory).parents[2] / "live"
    source.write_bytes(content)
    path = f"{directory}/q/state"
    files.make_directory(f"{directory}/q")
    files.put(source, path)
    files.make_durable([path, f"{directory}/q"])
    return StateFile("state", "chk-1/q/state", len(content), hashlib.sha256(content).hexdigest())


def completed(directory: str, file: StateFile) -> CompletedCheckpoint:
    subtask = SubtaskState(0, SubtaskMetrics(), (file,), acknowledged_ms=5)
    return CompletedCheckpoint(
        job_id=JOB_ID,
        job_name="wordcount",
        entry_class="w:main",
        checkpoint_id=1,
        properties=CheckpointProperties(
            CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION, forced=False
        ),
        trigger_timestamp=1,
        completion_timestamp=9,
        operators=(OperatorState("b" * 32, "count", VertexKind.STATEFUL, "q", 1, (subtask,)),),
        batches={"q": 41},
        location=directory,
        shared_location=f"{Path(directory).parent}/shared",
    )


# --- job graphs, results, attempts, programs


GRAPH = JobGraph(job_id=JOB_ID, name="wordcount", jar_id="1_w.py", entry_class="w:main", submitted_ms=1)


@pytest.mark.parametrize("old", [None, replace(GRAPH, name="before")], ids=["a first one", "one in its place"])
def test_the_graph_of_a_stored_job_can_be_read(tmp_path: Path, old: JobGraph | None) -> None:
    handles = Handles()
    store = HandleJobGraphStore(handles, tmp_path / "execution-plans")
    if old is not None:
        store.put(old)

    def check(cut: Cut) -> None:
        found = HandleJobGraphStore(Handles(cut.beside), tmp_path / "execution-plans").recover(JOB_ID)
        assert found == GRAPH if cut.is_over else found in (old, GRAPH)

    survives(Disk(tmp_path, lambda: tuple(handles.get_all_and_lock())), lambda: store.put(GRAPH), check)


RESULT = JobResult(JOB_ID, "wordcount", JobStatus.FINISHED, 1, 2)


def test_the_result_of_a_job_is_complete_or_missing(tmp_path: Path) -> None:
    store = FileJobResultStore(tmp_path / "results")

    def check(cut: Cut) -> None:
        assert store.has_result(JOB_ID) or not cut.is_over
        assert list(store.dirty_results()) == ([RESULT] if store.has_result(JOB_ID) else [])

    survives(Disk(tmp_path), lambda: store.create_dirty_result(RESULT), check)


def test_a_job_that_was_cleaned_up_remains_ended(tmp_path: Path) -> None:
    store = FileJobResultStore(tmp_path)
    store.create_dirty_result(RESULT)

    def check(cut: Cut) -> None:
        assert store.has_result(JOB_ID)
        assert store.has_clean_result(JOB_ID) or not cut.is_over

    survives(Disk(tmp_path), lambda: store.mark_as_clean(JOB_ID), check)


@pytest.mark.parametrize("old", [None, 1])
def test_the_number_of_an_attempt_is_known_before_anything_of_it_runs(tmp_path: Path, old: int | None) -> None:
    directory = JobDirectory(tmp_path / "jobs", JOB_ID)
    if old is not None:
        directory.write_record(record(old))

    def check(cut: Cut) -> None:
        found = directory.read_record()
        assert found == record(2) if cut.is_over else found in (record(2), record(old) if old else None)

    survives(Disk(tmp_path), lambda: directory.write_record(record(2)), check)


def record(attempt: int) -> AttemptRecord:
    return AttemptRecord(attempt, "t", f"/jobs/attempt-{attempt}", 1, BatchNumbers(JOB_ID, 0, 10_000), secret_hash="")


def test_an_uploaded_program_is_complete(tmp_path: Path) -> None:
    programs = ProgramStorage(tmp_path / "programs")

    def check(cut: Cut) -> None:
        found = [program.path.read_bytes() for program in programs.list()]
        assert found == [b"def main(): ..."] if cut.is_over else found in ([], [b"def main(): ..."])

    survives(Disk(tmp_path), lambda: programs.store("w.py", b"def main(): ..."), check)


def test_a_stored_job_has_its_program(tmp_path: Path) -> None:
    """A submission stores the program first, then the graph."""
    handles = Handles()
    graphs = HandleJobGraphStore(handles, tmp_path / "execution-plans")
    directory = JobDirectory(tmp_path / "jobs", JOB_ID)
    uploaded = tmp_path / "w.py"
    uploaded.write_text("def main(): ...")

    def submit() -> None:
        directory.store_program(uploaded, "w.py")
        graphs.put(GRAPH)

    def check(cut: Cut) -> None:
        if HandleJobGraphStore(Handles(cut.beside), tmp_path / "execution-plans").recover(JOB_ID) is not None:
            assert directory.program().read_text() == "def main(): ..."

    survives(Disk(tmp_path, lambda: tuple(handles.get_all_and_lock())), submit, check)
