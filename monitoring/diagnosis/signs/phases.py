"""Find the phase that took most of a slow checkpoint.

The barrier came late, inputs waited for each other, or state was committed or written slowly.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext_noop as _

from monitoring.diagnosis.diagnosis_facts import CheckpointFacts, DiagnosisFacts, OperatorFacts
from monitoring.diagnosis.finding import Advice, Confidence, Evidence, Finding
from monitoring.diagnosis.signs.base import (
    FLINK,
    SPARK,
    Label,
    Sign,
    has_expired,
    has_normal,
    is_slow,
    key_of,
    known,
    lasted,
    milliseconds,
    size,
)
from monitoring.reasons.reason import Reason, ReasonCode

SHARE = 0.4  # minimum share of the duration for a phase to be the cause
FULL = 0.8  # minimum share of the state that a full checkpoint writes
_NO_BOUNDARY = "has not come to the end of"  # checkpointing.spark.agent
UNDER_PRESSURE = f"{FLINK}ops/state/checkpointing_under_backpressure/"
LARGE_STATE = f"{FLINK}ops/state/large_state_tuning/"


class PhaseReason(ReasonCode):
    BACK_PRESSURE = "diagnosis.back-pressure", _("Back-pressure")
    START_DELAY = "diagnosis.start-delay", _("Start delay of the slowest subtask")
    BARRIER_LATE = (
        "diagnosis.barrier-late",
        _(
            "The barrier of checkpoint {number} took {took:milliseconds} to reach the slowest subtask, "
            "{share:.0f} % of the total duration: the job is under back-pressure, and an operator receives "
            "more than it can process."
        ),
    )
    NEVER_ARRIVED = (
        "diagnosis.barrier-never-arrived",
        _(
            "No subtask of “{name}” has acknowledged checkpoint {number}, while every subtask before it "
            "({before}) has: most likely the barrier is delayed in front of this operator because the job is "
            "under back-pressure."
        ),
    )
    SHORTER_BATCHES = (
        "diagnosis.shorter-batches",
        _("option of the source: with shorter batches, the barrier arrives sooner"),
    )
    UNALIGN = "diagnosis.unalign", _("barriers overtake buffered data")
    UNALIGN_LATER = "diagnosis.unalign-later", _("only checkpoints that do not align within this time become unaligned")
    BUFFER_LESS = "diagnosis.buffer-less", _("less data is buffered in front of the barrier")

    LONG_BATCH = "diagnosis.long-batch", _("Batch exceeded the checkpoint timeout")
    BATCH_GOES_ON = (
        "diagnosis.batch-goes-on",
        _(
            "The batch did not end within the timeout of {within:milliseconds}, so the barrier of checkpoint "
            "{number} never arrived."
        ),
    )
    BATCH_GOES_ON_SAID = (
        "diagnosis.batch-goes-on-said",
        _(
            "The batch did not end within the timeout of {within:milliseconds}, so the barrier of checkpoint "
            "{number} never arrived. {said}."
        ),
    )

    BUSY_SOURCE = "diagnosis.busy-source", _("A source is busy")
    SOURCE_SILENT = (
        "diagnosis.source-silent",
        _(
            "No subtask of the source “{name}” has acknowledged checkpoint {number}. Barriers start at the "
            "sources, so no other operator delays this one: the source is slow to take its own snapshot, or "
            "its thread is busy."
        ),
    )
    SOURCE_LATE = (
        "diagnosis.source-late",
        _(
            "The source “{name}” started checkpoint {number} only after {after:milliseconds}. Barriers start "
            "at the sources, so no other operator delayed this one: its thread was busy, for example with "
            "its previous snapshot."
        ),
    )

    ALIGNMENT = "diagnosis.alignment", _("Waiting for alignment")
    ALIGNMENT_TIME = "diagnosis.alignment-time", _("Alignment of the slowest subtask")
    INPUTS_APART = (
        "diagnosis.inputs-apart",
        _(
            "A subtask of checkpoint {number} waited {took:milliseconds} from its first to its last barrier, "
            "{share:.0f} % of the total duration: one of its inputs is behind the others."
        ),
    )

    SLOW_COMMIT = "diagnosis.slow-commit", _("Long state commit")
    SYNC_TIME = "diagnosis.sync-time", _("Synchronous part of the slowest subtask")
    LONG_SYNC = (
        "diagnosis.long-sync",
        _(
            "The slowest subtask of checkpoint {number} spent {took:milliseconds} in the synchronous part, "
            "{share:.0f} % of the total duration. It processes no data during that time."
        ),
    )
    OFF_HEAP = "diagnosis.off-heap", _("keeps state outside the heap and takes its snapshots without copying")

    SLOW_STORAGE = "diagnosis.slow-storage", _("Slow checkpoint storage")
    ASYNC_TIME = "diagnosis.async-time", _("Asynchronous part of the slowest subtask")
    LONG_WRITE = (
        "diagnosis.long-write",
        _(
            "The slowest subtask of checkpoint {number} took {took:milliseconds} to write its state to the "
            "checkpoint storage, {share:.0f} % of the total duration."
        ),
    )
    WRITTEN_PER_SECOND = "diagnosis.written-per-second", _("Written per second")
    WRITE_CHANGES = "diagnosis.write-changes", _("writes only the changes")
    NEEDED_FOR_CHANGES = "diagnosis.needed-for-changes", _("required for incremental checkpoints")


@dataclass(frozen=True)
class Found:
    """The time of a phase in the slowest subtask, its usual time, and the checkpoint's whole duration."""

    took: int
    usual: float | None
    whole: int


def dominant(facts: DiagnosisFacts, checkpoint: CheckpointFacts, phase: str) -> Found | None:
    """Return the phase's times if it has a large share of a slow checkpoint and takes longer than usual, else None."""
    took, whole = getattr(checkpoint, phase), checkpoint.lasted
    if took is None or not whole or whole <= 0 or not is_slow(facts, checkpoint) or took < SHARE * whole:
        return None
    usual = getattr(facts.normal, phase) if has_normal(facts) else None
    if usual is not None and took < max(2 * usual, usual + 500):
        return None
    return Found(took, usual, whole)


class Phase(Sign):
    phase: str
    label: Reason
    sentence: ReasonCode  # its arguments are number, took and share

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint = facts.checkpoint
        found = dominant(facts, checkpoint, self.phase) if checkpoint else None
        if checkpoint is None or found is None:
            return None
        share = 100 * min(found.took, found.whole) / found.whole
        return Finding(
            self.name,
            self.title,
            self.sentence(number=checkpoint.number, took=found.took, share=share),
            (
                Evidence(self.label, milliseconds(found.took), milliseconds(found.usual)),
                *lasted(facts, checkpoint),
                *self.more(facts, checkpoint),
            ),
            self.advise(facts, checkpoint),
            Confidence.LIKELY,
            share / 100,
        )

    def more(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        return ()

    def advise(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return ()


class BackPressure(Phase):
    name = "back_pressure"
    title = PhaseReason.BACK_PRESSURE()
    phase = "start_delay"
    label = PhaseReason.START_DELAY()
    sentence = PhaseReason.BARRIER_LATE

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        late = super().find(facts) if _late_source(facts) is None else None
        return late or _no_boundary(facts) or _never_arrived(facts)

    def advise(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return against_pressure(facts)


class Alignment(Phase):
    name = "alignment"
    title = PhaseReason.ALIGNMENT()
    phase = "alignment"
    label = PhaseReason.ALIGNMENT_TIME()
    sentence = PhaseReason.INPUTS_APART

    def advise(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return against_pressure(facts)


class SlowCommit(Phase):
    name = "slow_commit"
    title = PhaseReason.SLOW_COMMIT()
    phase = "sync"
    label = PhaseReason.SYNC_TIME()
    sentence = PhaseReason.LONG_SYNC

    def more(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        return _sizes(facts, checkpoint)

    def advise(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        if facts.engine == "spark":
            return incremental(facts)
        why = PhaseReason.OFF_HEAP()
        return (
            (Advice("state.backend.type", "rocksdb", why, LARGE_STATE),) if "HashMap" in facts.settings.backend else ()
        )


class SlowStorage(Phase):
    name = "slow_storage"
    title = PhaseReason.SLOW_STORAGE()
    phase = "async_"
    label = PhaseReason.ASYNC_TIME()
    sentence = PhaseReason.LONG_WRITE

    def more(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
        written, took = checkpoint.checkpointed_size, checkpoint.async_
        rate = (Evidence(PhaseReason.WRITTEN_PER_SECOND(), size(written / took * 1000)),) if written and took else ()
        return (*_sizes(facts, checkpoint), *rate)

    def advise(self, facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Advice, ...]:
        return incremental(facts) if writes_everything(checkpoint.checkpointed_size, checkpoint.state_size) else ()


def writes_everything(written: float | None, held: float | None) -> bool:
    return bool(written and held and written >= FULL * held)


def incremental(facts: DiagnosisFacts) -> tuple[Advice, ...]:
    why = PhaseReason.WRITE_CHANGES()
    if facts.engine == "spark":
        key = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        return () if facts.settings.says(key) == "true" else (Advice(key, "true", why, SPARK),)
    key = key_of(facts, "execution.checkpointing.incremental")
    needs = PhaseReason.NEEDED_FOR_CHANGES()
    backend = (
        (Advice("state.backend.type", "rocksdb", needs, LARGE_STATE),) if "HashMap" in facts.settings.backend else ()
    )
    return (Advice(key, "true", why, LARGE_STATE), *backend)


def against_pressure(facts: DiagnosisFacts) -> tuple[Advice, ...]:
    if facts.engine == "spark":
        why = PhaseReason.SHORTER_BATCHES()
        return (Advice("maxFilesPerTrigger / maxOffsetsPerTrigger", "", why, f"{SPARK}performance-tips.html"),)
    after = Advice(
        "execution.checkpointing.aligned-checkpoint-timeout",
        "30 s",
        PhaseReason.UNALIGN_LATER(),
        UNDER_PRESSURE,
    )
    why = PhaseReason.UNALIGN()
    if facts.settings.unaligned is False:
        return (Advice("execution.checkpointing.unaligned.enabled", "true", why, UNDER_PRESSURE), after)
    less = PhaseReason.BUFFER_LESS()
    return (Advice("taskmanager.network.memory.buffer-debloat.enabled", "true", less, UNDER_PRESSURE),)


def _no_boundary(facts: DiagnosisFacts) -> Finding | None:
    """Return a finding for a checkpoint that expired because the batch did not end, else None.

    In Waymark's job manager the end of the batch is the barrier. Either the failure message says that the batch did not
    end, or no subtask acknowledged, which each does right after that.
    """
    checkpoint = facts.checkpoint
    if checkpoint is None or not has_expired(checkpoint):
        return None
    is_said = _NO_BOUNDARY in checkpoint.failure
    if not is_said and not (facts.engine == "spark" and checkpoint.acknowledged == 0 < checkpoint.subtasks):
        return None
    limit = facts.settings.timeout or checkpoint.lasted
    if limit is None:
        return None
    said = checkpoint.failure.partition(". ")[2].strip()[:300].rstrip(".")
    values = {"number": checkpoint.number, "within": limit}
    return Finding(
        BackPressure.name,
        PhaseReason.LONG_BATCH(),
        PhaseReason.BATCH_GOES_ON_SAID(**values, said=said) if said else PhaseReason.BATCH_GOES_ON(**values),
        lasted(facts, checkpoint),
        against_pressure(facts),
        Confidence.CERTAIN if is_said else Confidence.LIKELY,
        1.0,
    )


def _never_arrived(facts: DiagnosisFacts) -> Finding | None:
    """Return a finding for an expired checkpoint that an operator never acknowledged though all of its inputs did."""
    checkpoint = facts.checkpoint
    if checkpoint is None or not has_expired(checkpoint):
        return None
    complete = {each.vertex: each.name for each in checkpoint.operators if each.is_complete}
    missing = next((each for each in _silent(checkpoint) if each.inputs and complete.keys() >= {*each.inputs}), None)
    if missing is None:
        return None
    before = ", ".join(complete[vertex] for vertex in missing.inputs or ())[:300]
    return Finding(
        BackPressure.name,
        BackPressure.title,
        PhaseReason.NEVER_ARRIVED(name=missing.name, number=checkpoint.number, before=before),
        (_acknowledged(checkpoint), *lasted(facts, checkpoint)),
        against_pressure(facts),
        Confidence.POSSIBLE,
        0.5,
    )


def _silent(checkpoint: CheckpointFacts) -> list[OperatorFacts]:
    """Return the operators without an acknowledged subtask."""
    return [each for each in checkpoint.operators if each.subtasks > 0 and each.acknowledged <= 0]


def _acknowledged(checkpoint: CheckpointFacts) -> Evidence:
    counts = (f"{each.name} {each.acknowledged}/{each.subtasks}" for each in checkpoint.operators if each.subtasks > 0)
    return Evidence(Label.ACKNOWLEDGED(), ", ".join(counts)[:300])


@dataclass(frozen=True)
class LateSource:
    """A source that started the checkpoint late. `after`: its start delay in ms; None: it never acknowledged."""

    name: str
    after: int | None


def _late_source(facts: DiagnosisFacts) -> LateSource | None:
    """Return the late source of a slow or expired checkpoint: no operator before it can be the cause.

    This is for Flink only: in Spark the barrier is the end of a batch, which all operators reach together.
    """
    checkpoint = facts.checkpoint
    if checkpoint is None or facts.engine == "spark" or not is_slow(facts, checkpoint):
        return None
    sources = [each for each in checkpoint.operators if each.is_source]
    found = dominant(facts, checkpoint, BackPressure.phase)
    for each in sources:
        delay = max((value for _, value in known(each.start_delay)), default=0)
        if found is not None and delay >= SHARE * found.whole:
            return LateSource(each.name, delay)
    some_complete = any(each.is_complete for each in checkpoint.operators)
    silent = [each for each in _silent(checkpoint) if each.is_source and some_complete]
    return LateSource(silent[0].name, None) if silent and has_expired(checkpoint) else None


class BusySource(Sign):
    name = "busy_source"
    title = PhaseReason.BUSY_SOURCE()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        source, checkpoint = _late_source(facts), facts.checkpoint
        if source is None or checkpoint is None:
            return None
        named = {"name": source.name, "number": checkpoint.number}
        return Finding(
            self.name,
            self.title,
            PhaseReason.SOURCE_SILENT(**named)
            if source.after is None
            else PhaseReason.SOURCE_LATE(**named, after=source.after),
            (_acknowledged(checkpoint), *lasted(facts, checkpoint)),
            confidence=Confidence.POSSIBLE,
            weight=0.5,
        )


def _sizes(facts: DiagnosisFacts, checkpoint: CheckpointFacts) -> tuple[Evidence, ...]:
    if checkpoint.checkpointed_size is None:
        return ()
    usual = size(facts.normal.checkpointed_size) if has_normal(facts) else ""
    written = Evidence(Label.WRITTEN(), size(checkpoint.checkpointed_size), usual)
    held = (Evidence(Label.FULL_SIZE(), size(checkpoint.state_size)),) if checkpoint.state_size else ()
    return (written, *held)


SIGNS = (BackPressure(), BusySource(), Alignment(), SlowCommit(), SlowStorage())
