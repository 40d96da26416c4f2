"""Items of maps: one row for each element of the list that a map goes over."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from catbird_django.models.flow_runs import HELD, FlowRun, StepRun
from catbird_django.models.flows import Step
from catbird_django.models.tasks import SUSPECT, TERMINAL
from catbird_django.models.workers import Worker
from catbird_django.statuses import ItemStatus


class ItemQuerySet(models.QuerySet["Item"]):
    """Questions people ask of items, in words."""

    def failed(self) -> ItemQuerySet:
        return self.filter(status=ItemStatus.FAILED)

    def live(self) -> ItemQuerySet:
        return self.exclude(status__in=TERMINAL)


class Item(models.Model):
    """One element of the list that a map goes over: claimed in place by any worker, kept with its run (F14)."""

    # The order of the columns is the table's, with what indexes look at first, as in step runs.
    flow_run = models.ForeignKey(
        FlowRun, models.DO_NOTHING, related_name="+", verbose_name=_("flow run"), db_constraint=False, db_index=False
    )
    step_run = models.ForeignKey(
        StepRun,
        models.DO_NOTHING,
        related_name="items",
        verbose_name=_("step run"),
        db_constraint=False,
        db_index=False,
    )
    step = models.ForeignKey(
        Step, models.DO_NOTHING, related_name="+", verbose_name=_("step"), db_constraint=False, db_index=False
    )
    index = models.IntegerField(_("index"), help_text=_("Its place in the list, from 0."))
    lost_count = models.IntegerField(_("lost deliveries"), db_default=0)
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    queue = models.TextField(_("queue"), db_default="default")
    status = models.TextField(_("status"), choices=ItemStatus.choices, db_default=ItemStatus.QUEUED)
    lease_until = models.DateTimeField(_("lease until"), null=True)
    visible_at = models.DateTimeField(_("visible at"), null=True, help_text=_("Not claimed before; empty means due."))
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)

    source = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("source"),
        null=True,
        db_constraint=False,
        db_index=False,
        help_text=_("The item of the map before it, whose output it takes."),
    )
    input = models.JSONField(_("input"), null=True, help_text=_("The element; empty: it is the output of the source."))
    output = models.JSONField(_("output"), null=True)
    error = models.JSONField(_("error"), null=True, help_text=_("Type, message and traceback of the last error."))
    progress = models.JSONField(_("progress"), null=True, help_text=_("How far the handler says it is."))
    delivery_token = models.UUIDField(_("delivery token"), null=True)
    worker = models.ForeignKey(
        Worker,
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("worker"),
        null=True,
        db_constraint=False,
        db_index=False,
    )
    delivery_count = models.IntegerField(_("deliveries"), db_default=0)
    failure_count = models.IntegerField(_("failures"), db_default=0)
    queued_at = models.DateTimeField(_("queued at"))
    started_at = models.DateTimeField(_("started at"), null=True, help_text=_("When it was first claimed."))
    finished_at = models.DateTimeField(_("finished at"), null=True)

    objects = ItemQuerySet.as_manager()

    class Meta:
        db_table = "cb_items"
        verbose_name = _("item")
        verbose_name_plural = _("items")
        default_permissions = ("view",)
        indexes = [
            models.Index(
                fields=["queue", "step", "priority", "id"],
                name="cb_items_claimable",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__lt=SUSPECT),
            ),
            models.Index(
                fields=["queue", "step", "priority", "id"],
                name="cb_items_suspect",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__gte=SUSPECT),
            ),
            models.Index(
                fields=["visible_at"],
                name="cb_items_due",
                condition=Q(status="queued", visible_at__isnull=False),
            ),
            models.Index(fields=["lease_until"], name="cb_items_leased", condition=Q(lease_until__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["step_run", "index"], name="cb_items_one_per_place"),
            models.CheckConstraint(condition=Q(status__in=ItemStatus.values), name="cb_items_status_known"),
            models.CheckConstraint(
                condition=Q(input__isnull=False) | Q(source__isnull=False), name="cb_items_has_element"
            ),
            models.CheckConstraint(
                condition=Q(
                    status__in=HELD, lease_until__isnull=False, delivery_token__isnull=False, worker__isnull=False
                )
                | (~Q(status__in=HELD) & Q(lease_until__isnull=True)),
                name="cb_items_held_means_leased",
            ),
            models.CheckConstraint(
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | (~Q(status__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="cb_items_terminal_means_finished",
            ),
            models.CheckConstraint(
                condition=~Q(status=ItemStatus.COMPLETED) | Q(output__isnull=False),
                name="cb_items_completed_has_output",
            ),
            models.CheckConstraint(
                condition=~Q(status=ItemStatus.FAILED) | Q(error__isnull=False), name="cb_items_failed_has_error"
            ),
            models.CheckConstraint(
                condition=Q(delivery_count__gte=F("failure_count") + F("lost_count")), name="cb_items_counts_add_up"
            ),
        ]

    def __str__(self) -> str:
        return str(self.index)
