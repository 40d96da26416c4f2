"""Worker processes: who they are, what they can run, when they were last heard of."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Worker(models.Model):
    """One start of one worker process."""

    boot_id = models.UUIDField(_("boot id"), unique=True, help_text=_("Random per start: host and pid may come again."))
    host = models.TextField(_("host"))
    pid = models.IntegerField(_("pid"))
    version = models.TextField(_("version"))
    queues = models.JSONField(_("queues"), null=True, help_text=_("The queues it serves; empty means all."))
    handlers = models.JSONField(_("handlers"), help_text=_("Names of the tasks it can run."))
    slots = models.IntegerField(_("slots"), help_text=_("How many handlers it runs at the same time."))
    started_at = models.DateTimeField(_("started at"))
    seen_at = models.DateTimeField(_("seen at"))
    stopped_at = models.DateTimeField(_("stopped at"), null=True)
    draining_since = models.DateTimeField(
        _("draining since"), null=True, help_text=_("Claims no more, and ends when its handlers have.")
    )
    is_listening = models.BooleanField(
        _("listening"), db_default=False, help_text=_("Whether NOTIFY reaches it; else it polls.")
    )
    abandoned_count = models.IntegerField(
        _("abandoned handlers"),
        db_default=0,
        help_text=_("Handlers that outlived their timeout and could not be stopped."),
    )
    sleeping_since = models.DateTimeField(_("sleeping since"), null=True, help_text=_("Waits to be woken by NOTIFY."))

    class Meta:
        db_table = "cb_workers"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
