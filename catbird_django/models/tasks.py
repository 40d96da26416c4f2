"""Tasks that code has registered, and their runs: one row per run from birth to retention."""

from __future__ import annotations

from django.db import models
from django.db.models import F, JSONField, Q, Value
from django.utils.translation import gettext_lazy as _

from catbird_django.models.workers import Worker
from catbird_django.statuses import TERMINAL_STATUSES, RunRole, TaskStatus

HELD = [TaskStatus.STARTED, TaskStatus.CANCELING]
TERMINAL = sorted(TERMINAL_STATUSES)
LIVE = sorted(set(TaskStatus.values) - TERMINAL_STATUSES)
# What an idempotency key stands for: live runs, and those that had their effect. The others free it.
EFFECTIVE = sorted({*LIVE, TaskStatus.COMPLETED.value, TaskStatus.SKIPPED.value})

# From so many lost deliveries on a run is claimed alone: it may be what kills its workers (T7a).
SUSPECT = 2


class Task(models.Model):
    """A background function that some process has registered, by name."""

    name = models.TextField(_("name"), unique=True)
    queue = models.TextField(_("queue"), db_default="default")
    description = models.TextField(_("description"), db_default="")
    handler = models.TextField(_("handler"), db_default="", help_text=_("Where the function lives, as module:name."))
    max_retries = models.IntegerField(_("retries"), db_default=0, help_text=_("How often a failed run is tried again."))
    max_lost = models.IntegerField(
        _("lost deliveries allowed"), db_default=5, help_text=_("How often a run may lose its worker before it fails.")
    )
    condition = models.JSONField(
        _("condition"), null=True, help_text=_("Checked when a run is queued; false means it is skipped.")
    )
    on_fail = models.TextField(_("on fail"), db_default="", help_text=_("The task that is run when a run has failed."))
    on_cancel = models.TextField(
        _("on cancel"), db_default="stop", help_text=_("Whether a started handler is stopped, or may finish.")
    )
    retention = models.DurationField(
        _("retention"), null=True, help_text=_("How long finished runs are kept; empty means as the settings say.")
    )
    options = models.JSONField(
        _("options"), db_default=Value({}, JSONField()), help_text=_("How workers run it: timeout, concurrency, …")
    )
    input_schema = models.JSONField(_("input schema"), null=True)
    output_schema = models.JSONField(_("output schema"), null=True)
    fingerprint = models.TextField(
        _("fingerprint"), help_text=_("Hash of everything above: equal hash, nothing to write.")
    )
    registered_at = models.DateTimeField(_("registered at"))

    class Meta:
        db_table = "cb_tasks"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class TaskRunQuerySet(models.QuerySet["TaskRun"]):
    """Questions people ask of task runs, in words."""

    def queued(self) -> TaskRunQuerySet:
        return self.filter(status=TaskStatus.QUEUED)

    def started(self) -> TaskRunQuerySet:
        return self.filter(status=TaskStatus.STARTED)

    def failed(self) -> TaskRunQuerySet:
        return self.filter(status=TaskStatus.FAILED)

    def live(self) -> TaskRunQuerySet:
        return self.exclude(status__in=TERMINAL)

    def finished(self) -> TaskRunQuerySet:
        return self.filter(status__in=TERMINAL)


class TaskRun(models.Model):
    """One request to run a task."""

    # Rows are written by hot SQL functions, which keep references right themselves: a deferred foreign key would be
    # checked at the caller's COMMIT, and an index on it would be one more write per run (R2a).
    #
    # The order of the columns is the table's. What indexes look at comes first: PostgreSQL looks at it in each write,
    # and to find a column behind others that are empty or of any length it walks over them.
    task = models.ForeignKey(
        Task, models.DO_NOTHING, related_name="runs", verbose_name=_("task"), db_constraint=False, db_index=False
    )
    lost_count = models.IntegerField(_("lost deliveries"), db_default=0)
    priority = models.SmallIntegerField(_("priority"), db_default=0, help_text=_("-100 to 100; higher first."))
    queue = models.TextField(_("queue"), db_default="default")
    status = models.TextField(_("status"), choices=TaskStatus.choices, db_default=TaskStatus.QUEUED)
    lease_until = models.DateTimeField(_("lease until"), null=True)
    visible_at = models.DateTimeField(_("visible at"), null=True, help_text=_("Not claimed before; empty means due."))
    expires_at = models.DateTimeField(_("expires at"), null=True, help_text=_("Not started after this time."))
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)
    origin = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        related_name="successors",
        verbose_name=_("origin"),
        null=True,
        db_constraint=False,
        db_index=False,
        help_text=_("The run that this one was made from."),
    )
    concurrency_key = models.TextField(
        _("concurrency key"), null=True, help_text=_("One live run of the task per key.")
    )
    idempotency_key = models.TextField(
        _("idempotency key"), null=True, help_text=_("One run of the task per key, unless it failed.")
    )
    debounce_key = models.TextField(
        _("debounce key"), null=True, help_text=_("One queued run of the task per key; given up when it is started.")
    )

    input = models.JSONField(_("input"))
    output = models.JSONField(_("output"), null=True)
    error = models.JSONField(_("error"), null=True, help_text=_("Type, message and traceback of the last error."))
    headers = models.JSONField(_("headers"), null=True)
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
    run_at = models.DateTimeField(_("run at"), null=True, help_text=_("When it was asked to run; empty means at once."))
    role = models.TextField(_("role"), choices=RunRole.choices, db_default="", help_text=_("What it is to its origin."))
    cancel_reason = models.TextField(_("cancel reason"), db_default="")
    canceled_by = models.TextField(_("canceled by"), db_default="")

    objects = TaskRunQuerySet.as_manager()

    class Meta:
        db_table = "cb_task_runs"
        verbose_name = _("task run")
        verbose_name_plural = _("task runs")
        default_permissions = ("view",)
        permissions = [
            ("start_run", _("Can start runs")),
            ("cancel_run", _("Can cancel runs")),
            ("retry_run", _("Can run again what has ended")),
            ("view_payload", _("Can see inputs, outputs and tracebacks")),
        ]
        indexes = [
            models.Index(
                fields=["queue", "task", "priority", "id"],
                name="cb_task_runs_claimable",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__lt=SUSPECT),
            ),
            models.Index(
                fields=["queue", "task", "priority", "id"],
                name="cb_task_runs_suspect",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__gte=SUSPECT),
            ),
            models.Index(
                fields=["visible_at"],
                name="cb_task_runs_due",
                condition=Q(status="queued", visible_at__isnull=False),
            ),
            models.Index(
                fields=["cancel_requested_at"], name="cb_task_runs_canceling", condition=Q(status="canceling")
            ),
            models.Index(
                fields=["expires_at"],
                name="cb_task_runs_expiring",
                condition=Q(status="queued", expires_at__isnull=False),
            ),
            models.Index(fields=["origin"], name="cb_task_runs_successors", condition=Q(origin__isnull=False)),
            models.Index(fields=["lease_until"], name="cb_task_runs_leased", condition=Q(lease_until__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["task", "concurrency_key"],
                name="cb_task_runs_one_live_per_key",
                condition=Q(concurrency_key__isnull=False, status__in=LIVE),
            ),
            models.UniqueConstraint(
                fields=["task", "idempotency_key"],
                name="cb_task_runs_one_effective_per_key",
                condition=Q(idempotency_key__isnull=False, status__in=EFFECTIVE),
            ),
            models.UniqueConstraint(
                fields=["task", "debounce_key"],
                name="cb_task_runs_one_queued_per_key",
                condition=Q(debounce_key__isnull=False, status="queued"),
            ),
            models.CheckConstraint(
                condition=Q(concurrency_key__isnull=True) | Q(idempotency_key__isnull=True),
                name="cb_task_runs_one_kind_of_key",
            ),
            models.CheckConstraint(condition=Q(status__in=TaskStatus.values), name="cb_task_runs_status_known"),
            models.CheckConstraint(condition=Q(priority__range=(-100, 100)), name="cb_task_runs_priority_range"),
            models.CheckConstraint(
                condition=Q(
                    status__in=HELD, lease_until__isnull=False, delivery_token__isnull=False, worker__isnull=False
                )
                | (~Q(status__in=HELD) & Q(lease_until__isnull=True)),
                name="cb_task_runs_held_means_leased",
            ),
            models.CheckConstraint(
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | (~Q(status__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="cb_task_runs_terminal_means_finished",
            ),
            models.CheckConstraint(
                condition=~Q(status=TaskStatus.COMPLETED) | Q(output__isnull=False),
                name="cb_task_runs_completed_has_output",
            ),
            models.CheckConstraint(
                condition=~Q(status=TaskStatus.FAILED) | Q(error__isnull=False), name="cb_task_runs_failed_has_error"
            ),
            models.CheckConstraint(
                condition=Q(delivery_count__gte=F("failure_count") + F("lost_count")), name="cb_task_runs_counts_add_up"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)
