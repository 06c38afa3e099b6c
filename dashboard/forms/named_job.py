"""Find the job whose name a person typed into a form."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from monitoring.models import Job

MISSING = gettext_lazy("Enter a job.")
HINT = gettext_lazy("The name of the job. If several clusters have a job of this name: cluster/job.")


def find_named_job(jobs: QuerySet[Job], text: str) -> Job:
    """Return the job with this name, or with this `cluster/name`.

    Raises:
        ValidationError: none of `jobs` has this name, or jobs of several clusters have it.
    """
    text, jobs = text.strip(), jobs.select_related("cluster").order_by("cluster__name")
    found = list(jobs.filter(name=text)[:2])
    if not found and "/" in text:
        cluster, _slash, name = text.partition("/")
        found = list(jobs.filter(name=name, cluster__name=cluster)[:2])
    if not found:
        raise ValidationError(_("There is no job named %(text)s.") % {"text": repr(text)})
    if len(found) > 1:
        raise ValidationError(
            _("Several clusters have a job named %(text)s. Enter %(name)s/%(text2)s.")
            % {"text": repr(text), "name": found[0].cluster.name, "text2": text}
        )
    return found[0]
