"""Render the rows of the fleet's list in Python.

Every open fleet page refreshes fifty rows every few seconds, and Django templates would take several times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from django import template
from django.template.context import RequestContext
from django.template.defaultfilters import truncatechars, urlencode
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from dashboard.health import Level
from dashboard.queries.activity import without_name
from dashboard.queries.fleet import Figures, JobRow, label_of
from dashboard.templatetags.figures import (
    age,
    badge,
    budget_left,
    budget_tone,
    bytes_,
    day_bars,
    duration,
    level_tone,
    objective_text,
    sparkline,
    translated,
)
from dashboard.templatetags.shell import acts_on
from monitoring.units import age_text

register = template.Library()


@register.simple_tag(takes_context=True)
def job_rows(context: RequestContext, rows: Sequence[JobRow]) -> SafeString:
    """Render the rows with the columns of the table in fleet/live.html."""
    return mark_safe("".join(_Rows(context).render_all(rows)))  # noqa: S308 - each cell escapes its text


class _Rows:
    """A renderer for the rows of one page. Texts and URLs that all rows share are looked up once."""

    def __init__(self, context: RequestContext) -> None:
        self._choosing, self._access = context["may_act_somewhere"], context["access"]
        self._before, _zero, self._after = reverse("job", args=[0]).rpartition("0")
        self._fleet = reverse("fleet")
        self._new_rule = reverse("rule-new", args=["failed_in_window"])
        texts = {
            "failure/": _("Newest failed checkpoint"),
            "rule": _("New alert rule"),
            "restart/": _("Restart from…"),
            "restart/?from=savepoint": _("Restart from the newest savepoint"),
        }
        self._menu_texts = {name: escape(text) for name, text in texts.items()}
        self._menu_name = _("Actions for %(name)s")
        self._drawn = _("Durations of the latest checkpoints")
        self._p95 = _("p95 of the last hour: %(p95)s")
        columns = ("Last checkpoint", "Duration", "Alignment p95", "State size", "Failures (7 d)")
        self._names = {name: escape(_(name)) for name in (*columns, "Savepoint age", "Budget left")}
        self._has_objectives = context["fleet"].has_objectives
        self._badges: dict[tuple[str, Level], str] = {}
        self._group, self._groups = context["chosen"].group, context["fleet"].groups
        self._levels = {level: escape(_(level.word)) for level in Level}

    def render_all(self, rows: Sequence[JobRow]) -> Iterator[str]:
        """Yield the rows. If the list is grouped, yield a heading before the first row of each group."""
        last = None
        for row in rows:
            if self._group and (value := label_of(row, self._group)) != last:
                yield self._heading(value)
                last = value
            yield self.render(row)

    def _heading(self, value: str) -> str:
        if value:
            href = f"{self._fleet}?labels={urlencode(self._group)}%3D{urlencode(value)}"
            title = f'<a href="{href}">{escape(self._group)}={escape(value)}</a>'
        else:
            title = escape(_("without the label %(key)s") % {"key": self._group})
        counts = self._groups[value]
        levels = (f"{counts[level]} {word}" for level, word in self._levels.items() if counts.get(level))
        cell = f'<td colspan="{12 + self._has_objectives}"><b>{title}</b> {" · ".join(levels)}</td>'
        return f'\n      <tr class="group-row">{cell}</tr>'

    def render(self, row: JobRow) -> str:
        choice = self._choice(row) if self._choosing else ""
        cells = "\n        ".join(
            (choice + self._job(row), self._state(row), *self._figures(row), self._automation(row), self._menu(row))
        )
        return f'\n      <tr class="link">\n        {cells}\n      </tr>'

    def _choice(self, row: JobRow) -> str:
        job = row.facts.job
        if not acts_on(self._access, job):
            return '<td class="choose"></td>'
        label = escape(_("Select %(name)s") % {"name": job.name})
        box = f'<input type="checkbox" data-keep form="bulk" name="jobs" value="{job.pk}" aria-label="{label}">'
        return f'<td class="choose">{box}</td>'

    def _job(self, row: JobRow) -> str:
        facts, name = row.facts, escape(row.facts.name)
        engine = escape(translated(facts.cluster.get_engine_display()))
        return (
            f'<td class="whole job-cell"><span class="job-line"><a class="job-name one-line" id="job-{facts.pk}"'
            f' href="{self._before}{facts.pk}{self._after}" title="{name}">{name}</a>'
            f'<span class="soft small one-line" title="{engine}">{escape(facts.cluster.name)}</span>'
            f"{self._labels(facts.job.labels)}</span>{_cause(row)}</td>"
        )

    def _labels(self, labels: dict[str, str]) -> str:
        tags = (
            f'<a class="tag" href="{self._fleet}?labels={urlencode(key)}%3D{urlencode(value)}">'
            f"{escape(key)}={escape(truncatechars(value, 24))}</a>"
            for key, value in labels.items()
        )
        return f'<span class="labels">{"".join(tags)}</span>' if labels else ""

    def _state(self, row: JobRow) -> str:
        word, run = row.health.state_word, row.facts.run
        if run is None:
            seen = escape(_("no run yet"))
        elif word == "unknown":
            seen = escape(_("last seen %(state)s") % {"state": run.state})
        else:
            seen = ""
        level = row.health.level
        more = f'<span class="soft small">{seen}</span>' if seen else self._level(level)
        return f'<td class="across nowrap"{_seen_title(row)}>{self._badge(word, level)} {more}</td>'

    def _level(self, level: Level) -> str:
        return f'<b class="level level-{level.word}">{self._levels[level]}</b>'

    def _badge(self, word: str, level: Level) -> str:
        """Return the status in the colour of the level: a job that is RUNNING may have a problem."""
        if (word, level) not in self._badges:
            self._badges[word, level] = badge(word, tone=level_tone(level))
        return self._badges[word, level]

    def _figures(self, row: JobRow) -> Iterator[str]:
        figures: Figures = row.figures
        yield self._number("Last checkpoint", age(row.facts.last_completed_at))
        yield self._duration(row)
        yield f'<td class="spark-cell hide-narrow only-wide">{sparkline(figures.durations, self._drawn)}</td>'
        yield self._number("Alignment p95", duration(figures.alignment_p95), " only-wide")
        yield self._number("State size", bytes_(row.facts.state_size))
        failed = figures.failed_per_day
        count = f"{sum(failed)}"
        if any(failed):
            title = self._menu_texts["failure/"]
            count = f'<a href="{self._before}{row.facts.pk}/failure/" title="{title}">{count}</a>'
        yield self._number("Failures (7 d)", f"{count}{day_bars(failed)}", " failures")
        yield self._number("Savepoint age", age(figures.savepoint_at))
        if self._has_objectives:
            yield self._budget(figures)

    def _duration(self, row: JobRow) -> str:
        """Return the duration of the last checkpoint, by which the list can be sorted, with the p95 of the hour."""
        p95 = row.figures.duration_p95
        title = "" if p95 is None else f' title="{escape(self._p95 % {"p95": duration(p95)})}"'
        shown = duration(row.facts.last_duration_ms)
        return f'<td class="num" data-name="{self._names["Duration"]}"{title}>{shown}</td>'

    def _budget(self, figures: Figures) -> str:
        """Return what is left of the budget of the job's objective, with the objective as the title."""
        budget = figures.budget
        if budget is None:
            return self._number("Budget left", '<span class="nothing">–</span>')
        tone = budget_tone(budget)
        mark = f' class="level level-{tone}"' if tone else ""
        shown = f'<span{mark} title="{escape(objective_text(budget))}">{budget_left(budget)}</span>'
        return self._number("Budget left", shown)

    def _number(self, column: str, text: str, more: str = "") -> str:
        return f'<td class="num{more}" data-name="{self._names[column]}">{text}</td>'

    def _automation(self, row: JobRow) -> str:
        return f'<td class="soft small by-itself less hide-narrow">{_automation(row)}</td>'

    def _menu(self, row: JobRow) -> str:
        """Return the cell with the links to act on the job. Without links it is empty."""
        facts, acts = row.facts, acts_on(self._access, row.facts.job)
        at, texts = f"{self._before}{facts.pk}/", self._menu_texts
        offered = {
            "failure/": any(row.figures.failed_per_day),
            "restart/": acts,
            "restart/?from=savepoint": acts and row.figures.savepoint_at is not None,
        }
        links = [f'<a href="{at}{path}">{texts[path]}</a>' for path, is_offered in offered.items() if is_offered]
        if acts:
            links.append(f'<a href="{self._new_rule}?job={facts.pk}">{texts["rule"]}</a>')
        if not links:
            return '<td class="row-menu"></td>'
        name = escape(self._menu_name % {"name": facts.name})
        return (
            f'<td class="row-menu"><details class="menu" name="menu" id="menu-{facts.pk}"><summary'
            f' aria-label="{name}"><span aria-hidden="true">⋯</span></summary>'
            f'<div class="menu-items">{"".join(links)}</div></details></td>'
        )


def _cause(row: JobRow) -> str:
    sentence, name = row.health.sentence, row.facts.name
    if not sentence:
        return ""
    shown = escape(truncatechars(without_name(sentence, name), 160))
    return f'<span class="small one-line cause" title="{escape(sentence)}">{shown}</span>'


def _seen_title(row: JobRow) -> str:
    """Return the attribute that says when the engine last reported the status, or "" if it never has."""
    at = row.facts.seen_at
    if at is None:
        return ""
    seen = _("%(age)s ago") % {"age": age_text(timezone.now() - at)}
    return f' title="{escape(_("seen"))} {escape(seen)}"'


def _automation(row: JobRow) -> str:
    job, attempt = row.facts.job, row.facts.attempt
    if attempt is not None:
        text = escape(_("Restart %(epoch)s…") % {"epoch": attempt.epoch})
        return f'<a href="{reverse("restart-progress", args=[attempt.pk])}">{text}</a>'
    if job.automation_paused:
        return escape(_("Paused"))
    if row.health.state_word == "unknown" and row.facts.missing_since is None:
        return escape(_("On hold"))
    if row.health.level.word == "ended":
        return escape(_("Off (job ended)"))
    if job.auto_restart:
        return escape(_("Auto-restart on"))
    return escape(_("Savepoints only") if job.scheduled else _("Monitor only"))
