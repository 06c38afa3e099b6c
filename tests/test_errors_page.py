"""docs/errors.md explains every code that reports a problem to a person, and names no code that does not exist."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import iter_modules

from monitoring import reasons
from monitoring.alerts.kinds import kinds
from monitoring.reasons.reason import codes
from tests.test_documentation import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text()
ANCHORS = re.findall(r'<a id="([^"]+)"></a>', PAGE)
# Areas in which every code is explained, except for the codes below.
AREAS = ("alerts", "automation", "notify", "recovery", "savepoints", "state-reads")
# Codes without a section: parts of a sentence, successful steps, requests of people, and codes that wrap a reason.
WITHOUT_SECTION = (
    # rules without a finding, and parts of the sentences of rules
    *("alerts.*-rule", "alerts.*-rule-*", "alerts.*-figure", "alerts.*-measured"),
    "alerts.deployment-problem-over",
    *("alerts.cluster-unreachable-over", "alerts.another-cluster-over", "alerts.waymark-blind-over"),
    *("alerts.checkpoints", "alerts.savepoints", "alerts.times", "alerts.days", "alerts.days-before"),
    *("alerts.same-hour", "alerts.same-hour-before", "alerts.in-total", "alerts.since-day"),
    *("alerts.failed-in-window-below", "alerts.none-failed-in-total", "alerts.no-consecutive-failures"),
    *("alerts.no-checkpoint-owed", "alerts.no-checkpoint-yet", "alerts.no-checkpoints-a-day-apart"),
    *("alerts.no-objective", "alerts.no-p95", "alerts.no-state", "alerts.run-as-scheduled"),
    *("alerts.job-not-dead", "alerts.job-running-again", "alerts.job-stopped"),
    *("alerts.restart-as-run", "alerts.restart-by-engine"),
    # actions of people on an incident, and its end
    *("alerts.acknowledged", "alerts.acknowledged-note", "alerts.snoozed", "alerts.snoozed-note"),
    *("alerts.assigned", "alerts.assigned-note", "alerts.unassigned", "alerts.unassigned-note"),
    *("alerts.snooze-over", "alerts.resolved", "alerts.resolved-by", "alerts.closed-by-hand", "alerts.released"),
    *("alerts.hid-incidents", "alerts.test", "alerts.note", "alerts.reopened", "alerts.reopened-note"),
    # the reason for a start, and its snapshot
    *("recovery.*-asked", "recovery.*-asked-noted", "recovery.submitted", "recovery.run-scheduled"),
    *("recovery.failed", "recovery.failed-with", "recovery.unknown-to-engine", "recovery.unknown-to-engine-with"),
    *("recovery.rescale", "recovery.default-parallelism", "recovery.start-with", "recovery.another-launch"),
    *("recovery.start-anew", "recovery.new-history-program", "recovery.history-stopped"),
    *("recovery.checkpoint", "recovery.savepoint", "recovery.unnumbered-*", "recovery.savepoint-of-the-stop"),
    *("recovery.empty-state", "recovery.no-batch-yet", "recovery.no-state-yet", "recovery.not-dead"),
    # the results of a cycle, and codes that wrap a reason
    *("recovery.pause-over", "recovery.breaker-opened", "recovery.needs-person", "recovery.left"),
    *("recovery.not-restarted", "recovery.not-restarted-after", "recovery.restart-decided"),
    *("recovery.restart-failed", "recovery.restarts-moved", "recovery.back-again"),
    *("recovery.job-is", "recovery.job-is-back", "recovery.run-of-job", "recovery.with-last-answer"),
    *("recovery.waiting", "recovery.succeeded", "recovery.ended-failed", "recovery.canceled", "recovery.overtaken"),
    *("recovery.canceled-by", "recovery.times"),
    # steps in progress and successful steps
    *("recovery.run-ended", "recovery.started-by-command", "recovery.program-on-cluster"),
    *("recovery.program-to-upload", "recovery.program-uploaded", "recovery.imported", "recovery.importing"),
    *("recovery.state-of-the-stop", "recovery.without-state", "recovery.state-complete", "recovery.not-running"),
    *("recovery.stopped", "recovery.stopped-*", "recovery.stopping-with-savepoint", "recovery.cancelling"),
    *(
        "recovery.redeployed",
        "recovery.saved-before",
        "recovery.saving-before-redeploy",
        *("recovery.started-by-operator", "recovery.latest-state"),
    ),
    *("recovery.saved-cancelling", "recovery.saving-before-cancel", "recovery.savepoint-not-known-yet"),
    *("recovery.started", "recovery.from-state", "recovery.from-nothing"),
    *("recovery.cluster-starting", "recovery.cluster-accepted", "savepoints.stopped", "savepoints.no-directory-known"),
    *("recovery.new-run-is", "recovery.new-run-not-read"),
    # decisions of the retention, and texts of schedules
    *("savepoints.keeps-*", "savepoints.job-keeps-all", "savepoints.among-newest", "savepoints.younger"),
    *("savepoints.outlasted", "savepoints.not-ours", "savepoints.by-hand", "savepoints.sentence"),
    *("savepoints.no-schedule", "savepoints.every", "savepoints.cron", "savepoints.quieted"),
    # refused requests, whose text says what is allowed
    *("alerts.maintenance", "alerts.of-*", "state-reads.checkpoint", "state-reads.savepoint"),
    *("automation.*-needed", "automation.why-too-long", "recovery.bad-*", "recovery.name-needed"),
    *("recovery.operator-needed", "recovery.change-needed"),
    *("recovery.free-name-needed", "recovery.path-needed", "notify.bad-*", "notify.sentence"),
    *("notify.*-needed", "notify.services", "notify.incomplete-address", "notify.no-incidents"),
    *("notify.apprise-sent", "notify.mail-taken", "notify.only-channel", "notify.channel-removed"),
    *("notify.shift", "notify.still-waiting", "notify.sent-already", "notify.test-given-up"),
)


def known() -> set[str]:
    for module in iter_modules(reasons.__path__, f"{reasons.__name__}."):
        import_module(module.name)
    assert kinds()  # loads all kinds, because each defines codes
    return {code.value for code in codes()}


def test_every_anchor_is_a_code_and_stands_once_before_it() -> None:
    assert [anchor for anchor in ANCHORS if anchor not in known()] == []
    assert [anchor for anchor, count in Counter(ANCHORS).items() if count > 1] == []
    assert re.findall(r"<a id=\"([^\"]+)\"></a>`\1`", PAGE) == ANCHORS


def test_every_code_that_reports_a_problem_is_explained() -> None:
    problems = {code for code in known() if code.partition(".")[0] in AREAS and not needs_no_section(code)}
    assert len(problems) > 150
    assert sorted(problems.difference(ANCHORS)) == [], "explain them in docs/errors.md, or see WITHOUT_SECTION"


def needs_no_section(code: str) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in WITHOUT_SECTION)


def test_every_exception_is_a_code_without_a_section() -> None:
    unused = [pattern for pattern in WITHOUT_SECTION if not any(fnmatchcase(code, pattern) for code in known())]
    assert unused == []
    assert [anchor for anchor in ANCHORS if needs_no_section(anchor)] == []


def test_every_section_with_codes_has_causes_and_actions() -> None:
    sections = [each for each in re.split(r"^#+ ", PAGE, flags=re.MULTILINE) if "<a id=" in each]
    assert sections
    incomplete = [
        each.partition("\n")[0] for each in sections if not ("**Why:** " in each and "**What to do:** " in each)
    ]
    assert incomplete == []
