"""Views of the fleet page that a person has saved under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A saved view. `query`: the filters in the page's URL, such as `state=failing&labels=team%3Dpayments`."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("user", "name"), name="one_view_of_a_name_per_user"),)

    def __str__(self) -> str:
        return self.name
