"""What keeps the engine going: leases for work that one worker does for all, and circuit breakers."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from catbird_django.models.tasks import Task
from catbird_django.models.workers import Worker


class Lease(models.Model):
    """A piece of upkeep that one worker at a time does for all; or, of no worker, that somebody watches runs."""

    name = models.TextField(_("name"), unique=True)
    worker = models.ForeignKey(
        Worker,
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("worker"),
        null=True,
        db_constraint=False,
        db_index=False,
    )
    held_until = models.DateTimeField(_("held until"))

    class Meta:
        db_table = "cb_leases"
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class Breaker(models.Model):
    """The circuit breaker of a task, shared by all workers (T9). There is a row once it has seen a failure."""

    task = models.OneToOneField(
        Task, models.DO_NOTHING, related_name="breaker", verbose_name=_("task"), db_constraint=False
    )
    failure_count = models.IntegerField(_("failures in a row"), db_default=0)
    open_until = models.DateTimeField(
        _("open until"), null=True, help_text=_("Nothing is claimed before; empty means that it is closed.")
    )
    trial_run_id = models.BigIntegerField(
        _("trial"), null=True, help_text=_("The run that is tried once the rest is over; while it runs, no other is.")
    )
    trial_token = models.UUIDField(_("delivery token of the trial"), null=True)

    class Meta:
        db_table = "cb_breakers"
        verbose_name = _("circuit breaker")
        verbose_name_plural = _("circuit breakers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.task_id)
