"""What is written down about runs beside their rows: events, log lines and tags. Removed together with the run."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from catbird_django.statuses import RunKind


class Event(models.Model):
    """Something that really happened to a run and that its row's own timestamps do not tell (E1)."""

    at = models.DateTimeField(_("at"))
    run_kind = models.TextField(_("kind of run"), choices=RunKind.choices)
    run_id = models.BigIntegerField(_("run"))
    event = models.TextField(_("event"))
    from_status = models.TextField(_("from status"), db_default="", help_text=_("Empty when the run began with it."))
    to_status = models.TextField(_("to status"), db_default="")
    delivery_token = models.UUIDField(_("delivery token"), null=True)
    actor = models.TextField(_("actor"), db_default="", help_text=_("worker, tick, client, or a person."))
    details = models.JSONField(_("details"), null=True)

    class Meta:
        db_table = "cb_events"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["run_kind", "run_id", "id"], name="cb_events_of_run")]
        constraints = [
            models.CheckConstraint(condition=models.Q(run_kind__in=RunKind.values), name="cb_events_run_kind_known")
        ]

    def __str__(self) -> str:
        return self.event


class RunLog(models.Model):
    """A line that a handler wrote with `ctx.log()`."""

    at = models.DateTimeField(_("at"))
    run_kind = models.TextField(_("kind of run"), choices=RunKind.choices)
    run_id = models.BigIntegerField(_("run"))
    attempt = models.IntegerField(_("attempt"))
    level = models.TextField(_("level"))
    message = models.TextField(_("message"))

    class Meta:
        db_table = "cb_run_logs"
        verbose_name = _("log line")
        verbose_name_plural = _("log lines")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["run_kind", "run_id", "id"], name="cb_run_logs_of_run")]

    def __str__(self) -> str:
        return self.message


class RunTag(models.Model):
    """A word by which a run can be found."""

    run_kind = models.TextField(_("kind of run"), choices=RunKind.choices)
    run_id = models.BigIntegerField(_("run"))
    tag = models.TextField(_("tag"))

    class Meta:
        db_table = "cb_run_tags"
        verbose_name = _("tag")
        verbose_name_plural = _("tags")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["run_kind", "tag", "run_id"], name="cb_run_tags_found")]
        constraints = [models.UniqueConstraint(fields=["run_kind", "run_id", "tag"], name="cb_run_tags_once")]

    def __str__(self) -> str:
        return self.tag
