"""What keeps the engine going: leases for work that one worker does for all."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from catbird_django.models.workers import Worker


class Lease(models.Model):
    """A piece of upkeep that one worker at a time does for all."""

    name = models.TextField(_("name"), unique=True)
    worker = models.ForeignKey(
        Worker, models.DO_NOTHING, related_name="+", verbose_name=_("worker"), db_constraint=False, db_index=False
    )
    held_until = models.DateTimeField(_("held until"))

    class Meta:
        db_table = "cb_leases"
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
