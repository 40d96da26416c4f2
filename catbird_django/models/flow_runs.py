"""Runs of flows: the run, its steps, what each of them waits for and has received, and the signals given to it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from catbird_django.models.flows import Flow, Step
from catbird_django.models.tasks import SUSPECT, TERMINAL
from catbird_django.models.workers import Worker
from catbird_django.statuses import FlowStatus, RunRole, SignalVerdict, SkipReason, StepStatus

LIVE_FLOWS = sorted(set(FlowStatus.values) - set(TERMINAL))
# What an idempotency key stands for: live runs, and those that had their effect. The others free it.
EFFECTIVE_FLOWS = sorted({*LIVE_FLOWS, FlowStatus.COMPLETED.value})
HELD = [StepStatus.STARTED, StepStatus.CANCELING]


class FlowRunQuerySet(models.QuerySet["FlowRun"]):
    """Questions people ask of flow runs, in words."""

    def started(self) -> FlowRunQuerySet:
        return self.filter(status=FlowStatus.STARTED)

    def failed(self) -> FlowRunQuerySet:
        return self.filter(status=FlowStatus.FAILED)

    def live(self) -> FlowRunQuerySet:
        return self.exclude(status__in=TERMINAL)

    def finished(self) -> FlowRunQuerySet:
        return self.filter(status__in=TERMINAL)


class FlowRun(models.Model):
    """One request to run a flow, on the version of it that was current then."""

    # As with task runs: written by hot functions, so without constraints on references (R2a).
    flow = models.ForeignKey(
        Flow, models.DO_NOTHING, related_name="runs", verbose_name=_("flow"), db_constraint=False, db_index=False
    )
    flow_name = models.TextField(_("name of the flow"), help_text=_("Keys are unique per flow, not per version."))
    status = models.TextField(_("status"), choices=FlowStatus.choices, db_default=FlowStatus.STARTED)
    priority = models.SmallIntegerField(_("priority"), db_default=0, help_text=_("-100 to 100; higher first."))
    queue = models.TextField(_("queue"), db_default="default")
    expires_at = models.DateTimeField(_("expires at"), null=True, help_text=_("Ended, as by cancel, if not before."))
    deadline_at = models.DateTimeField(_("deadline"), null=True, help_text=_("Failed if it has not ended by then."))
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
        _("concurrency key"), null=True, help_text=_("One live run of the flow per key.")
    )
    idempotency_key = models.TextField(
        _("idempotency key"), null=True, help_text=_("One run of the flow per key, unless it failed.")
    )
    input = models.JSONField(_("input"))
    output = models.JSONField(_("output"), null=True)
    error = models.JSONField(_("error"), null=True, help_text=_("What went wrong, and in which step."))
    headers = models.JSONField(_("headers"), null=True)
    role = models.TextField(_("role"), choices=RunRole.choices, db_default="", help_text=_("What it is to its origin."))
    run_at = models.DateTimeField(_("run at"), null=True, help_text=_("When it was asked to run; empty means at once."))
    started_by = models.TextField(_("started by"), db_default="")
    started_at = models.DateTimeField(_("started at"))
    finished_at = models.DateTimeField(_("finished at"), null=True)
    ending_since = models.DateTimeField(_("ending since"), null=True, help_text=_("When its outcome was decided."))
    outcome = models.TextField(
        _("outcome"), db_default="", help_text=_("What it will be, once what still runs has been stopped.")
    )
    output_run = models.ForeignKey(
        "StepRun",
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("output of"),
        null=True,
        db_constraint=False,
        db_index=False,
        help_text=_("The map whose items' outputs are the output: such a list is not stored once more."),
    )
    early_step = models.TextField(_("completed early by"), db_default="", help_text=_("The step that ended it."))
    early_reason = models.TextField(_("why it was completed early"), db_default="")
    cancel_reason = models.TextField(_("cancel reason"), db_default="")
    canceled_by = models.TextField(_("canceled by"), db_default="")

    objects = FlowRunQuerySet.as_manager()

    class Meta:
        db_table = "cb_flow_runs"
        verbose_name = _("flow run")
        verbose_name_plural = _("flow runs")
        default_permissions = ("view",)
        permissions = [
            ("send_signal", _("Can give signals to runs")),
            ("override_four_eyes", _("Can give signals to runs that they have started, under four eyes")),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"],
                name="cb_flow_runs_expiring",
                condition=Q(expires_at__isnull=False, finished_at__isnull=True),
            ),
            models.Index(
                fields=["deadline_at"],
                name="cb_flow_runs_deadline",
                condition=Q(deadline_at__isnull=False, finished_at__isnull=True),
            ),
            models.Index(fields=["origin"], name="cb_flow_runs_successors", condition=Q(origin__isnull=False)),
            models.Index(
                fields=["ending_since"],
                name="cb_flow_runs_ending",
                condition=Q(ending_since__isnull=False, finished_at__isnull=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["flow_name", "concurrency_key"],
                name="cb_flow_runs_one_live_per_key",
                condition=Q(concurrency_key__isnull=False, status__in=LIVE_FLOWS),
            ),
            models.UniqueConstraint(
                fields=["flow_name", "idempotency_key"],
                name="cb_flow_runs_one_effective_per_key",
                condition=Q(idempotency_key__isnull=False, status__in=EFFECTIVE_FLOWS),
            ),
            models.CheckConstraint(
                condition=Q(concurrency_key__isnull=True) | Q(idempotency_key__isnull=True),
                name="cb_flow_runs_one_kind_of_key",
            ),
            models.CheckConstraint(condition=Q(status__in=FlowStatus.values), name="cb_flow_runs_status_known"),
            models.CheckConstraint(condition=Q(priority__range=(-100, 100)), name="cb_flow_runs_priority_range"),
            models.CheckConstraint(
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | (~Q(status__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="cb_flow_runs_terminal_means_finished",
            ),
            models.CheckConstraint(
                condition=~Q(status=FlowStatus.COMPLETED) | Q(output__isnull=False) | Q(output_run__isnull=False),
                name="cb_flow_runs_completed_has_output",
            ),
            models.CheckConstraint(
                condition=~Q(status=FlowStatus.FAILED) | Q(error__isnull=False), name="cb_flow_runs_failed_has_error"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class StepRunQuerySet(models.QuerySet["StepRun"]):
    """Questions people ask of step runs, in words."""

    def waiting_for_signal(self) -> StepRunQuerySet:
        return self.filter(status=StepStatus.WAITING_FOR_SIGNAL)

    def failed(self) -> StepRunQuerySet:
        return self.filter(status=StepStatus.FAILED)

    def live(self) -> StepRunQuerySet:
        return self.exclude(status__in=TERMINAL)


class StepRun(models.Model):
    """One step of one flow run: made with the run, claimed in place, kept with it."""

    # The order of the columns is the table's, with what indexes look at first, as in task runs.
    flow_run = models.ForeignKey(
        FlowRun,
        models.DO_NOTHING,
        related_name="step_runs",
        verbose_name=_("flow run"),
        db_constraint=False,
        db_index=False,
    )
    step = models.ForeignKey(
        Step, models.DO_NOTHING, related_name="runs", verbose_name=_("step"), db_constraint=False, db_index=False
    )
    lost_count = models.IntegerField(_("lost deliveries"), db_default=0)
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    queue = models.TextField(_("queue"), db_default="default")
    status = models.TextField(_("status"), choices=StepStatus.choices, db_default=StepStatus.WAITING_FOR_DEPENDENCIES)
    lease_until = models.DateTimeField(_("lease until"), null=True)
    visible_at = models.DateTimeField(_("visible at"), null=True, help_text=_("Not claimed before; empty means due."))
    deadline_at = models.DateTimeField(_("deadline"), null=True, help_text=_("Failed if it has not ended by then."))
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)

    output = models.JSONField(_("output"), null=True)
    error = models.JSONField(_("error"), null=True, help_text=_("Type, message and traceback of the last error."))
    skip_reason = models.TextField(_("skip reason"), choices=SkipReason.choices, db_default="")
    skip_message = models.TextField(_("why it was skipped"), db_default="")
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
    items_spawned = models.IntegerField(_("items"), null=True, help_text=_("Of a map, once it goes over its list."))
    items_completed = models.IntegerField(_("items completed"), db_default=0)
    items_failed = models.IntegerField(_("items failed"), db_default=0)
    items_canceled = models.IntegerField(_("items canceled"), db_default=0)
    items_ended_from = models.IntegerField(
        _("items ended from"),
        null=True,
        help_text=_("While its run is being ended: none from this index on is queued."),
    )
    signaled_at = models.DateTimeField(_("signaled at"), null=True, help_text=_("When its signal requirement was met."))
    signal_due_at = models.DateTimeField(
        _("signal due at"), null=True, help_text=_("Until when its signal is waited for.")
    )
    signal_overdue_at = models.DateTimeField(
        _("signal overdue since"), null=True, help_text=_("When its signal was found not to have come in time.")
    )
    queued_at = models.DateTimeField(_("queued at"), null=True, help_text=_("When everything it needs was there."))
    started_at = models.DateTimeField(_("started at"), null=True, help_text=_("When it was first claimed."))
    finished_at = models.DateTimeField(_("finished at"), null=True)

    objects = StepRunQuerySet.as_manager()

    class Meta:
        db_table = "cb_step_runs"
        verbose_name = _("step run")
        verbose_name_plural = _("step runs")
        default_permissions = ("view",)
        indexes = [
            models.Index(
                fields=["queue", "step", "priority", "id"],
                name="cb_step_runs_claimable",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__lt=SUSPECT),
            ),
            models.Index(
                fields=["queue", "step", "priority", "id"],
                name="cb_step_runs_suspect",
                condition=Q(status="queued", visible_at__isnull=True, lost_count__gte=SUSPECT),
            ),
            models.Index(
                fields=["visible_at"],
                name="cb_step_runs_due",
                condition=Q(status="queued", visible_at__isnull=False),
            ),
            models.Index(fields=["lease_until"], name="cb_step_runs_leased", condition=Q(lease_until__isnull=False)),
            models.Index(
                fields=["deadline_at"],
                name="cb_step_runs_deadline",
                condition=Q(deadline_at__isnull=False, finished_at__isnull=True),
            ),
            models.Index(
                fields=["cancel_requested_at"], name="cb_step_runs_canceling", condition=Q(status="canceling")
            ),
            models.Index(
                fields=["signal_due_at"],
                name="cb_step_runs_signal_due",
                condition=Q(status="waiting_for_signal", signal_due_at__isnull=False, signal_overdue_at__isnull=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["flow_run", "step"], name="cb_step_runs_one_per_step"),
            models.CheckConstraint(condition=Q(status__in=StepStatus.values), name="cb_step_runs_status_known"),
            models.CheckConstraint(
                condition=Q(
                    status__in=HELD, lease_until__isnull=False, delivery_token__isnull=False, worker__isnull=False
                )
                | (~Q(status__in=HELD) & Q(lease_until__isnull=True)),
                name="cb_step_runs_held_means_leased",
            ),
            models.CheckConstraint(
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | (~Q(status__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="cb_step_runs_terminal_means_finished",
            ),
            models.CheckConstraint(
                # The output of a map is what its items have returned: it is not stored once more.
                condition=~Q(status=StepStatus.COMPLETED) | Q(output__isnull=False) | Q(items_spawned__isnull=False),
                name="cb_step_runs_completed_has_output",
            ),
            models.CheckConstraint(
                condition=~Q(status=StepStatus.FAILED) | Q(error__isnull=False), name="cb_step_runs_failed_has_error"
            ),
            models.CheckConstraint(
                condition=Q(delivery_count__gte=F("failure_count") + F("lost_count")), name="cb_step_runs_counts_add_up"
            ),
            models.CheckConstraint(
                condition=Q(items_spawned__isnull=True)
                | Q(items_spawned__gte=F("items_completed") + F("items_failed") + F("items_canceled")),
                name="cb_step_runs_items_add_up",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Readiness(models.Model):
    """How much of what a step needs is there. One row per step, and one without a step: the end of the run (F3)."""

    flow_run = models.ForeignKey(
        FlowRun,
        models.DO_NOTHING,
        related_name="readiness",
        verbose_name=_("flow run"),
        db_constraint=False,
        db_index=False,
    )
    step = models.ForeignKey(
        Step,
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("step"),
        null=True,
        db_constraint=False,
        db_index=False,
        help_text=_("Empty for the end of the run."),
    )
    step_run = models.ForeignKey(
        StepRun,
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("step run"),
        null=True,
        db_constraint=False,
        db_index=False,
    )
    required_count = models.IntegerField(_("required"))
    completed_count = models.IntegerField(_("completed"), db_default=0, help_text=_("Requirements met, however met."))
    skipped_count = models.IntegerField(_("skipped"), db_default=0, help_text=_("Those of them that were skips."))

    class Meta:
        db_table = "cb_step_readiness"
        verbose_name = _("readiness")
        verbose_name_plural = _("readiness")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["flow_run", "step"], name="cb_step_readiness_one_per_step"),
            models.UniqueConstraint(
                fields=["flow_run"], name="cb_step_readiness_one_end", condition=Q(step__isnull=True)
            ),
            models.CheckConstraint(
                condition=Q(completed_count__lte=F("required_count")), name="cb_step_readiness_no_overflow"
            ),
            models.CheckConstraint(
                condition=Q(skipped_count__gte=0, skipped_count__lte=F("completed_count")),
                name="cb_step_readiness_skips_are_met",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.completed_count}/{self.required_count}"


class StepInput(models.Model):
    """What a step has received from a step before it: the value when it is small, else where it is to be read (F5)."""

    step_run = models.ForeignKey(
        StepRun,
        models.DO_NOTHING,
        related_name="inputs",
        verbose_name=_("step run"),
        db_constraint=False,
        db_index=False,
    )
    source = models.TextField(_("source"), help_text=_("The name of the step that it comes from."))
    source_run = models.ForeignKey(
        StepRun, models.DO_NOTHING, related_name="+", verbose_name=_("from"), db_constraint=False, db_index=False
    )
    place = models.IntegerField(_("place"), help_text=_("The position of the source in the flow."))
    is_skipped = models.BooleanField(_("skipped"), db_default=False, help_text=_("Nothing came: the step was skipped."))
    value = models.JSONField(_("value"), null=True, help_text=_("Empty: read it from the source."))

    class Meta:
        db_table = "cb_step_inputs"
        verbose_name = _("step input")
        verbose_name_plural = _("step inputs")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["step_run", "source"], name="cb_step_inputs_once")]

    def __str__(self) -> str:
        return self.source


class SignalDelivery(models.Model):
    """A signal that somebody gave, or tried to: who, when, what, and whether it counted (F12)."""

    # Plain values: what a refused signal names may not exist.
    flow_run_id = models.BigIntegerField(_("flow run"))
    step = models.TextField(_("step"))
    payload = models.JSONField(_("payload"), null=True)
    actor = models.TextField(_("actor"), db_default="")
    dedupe_id = models.TextField(_("dedupe id"), null=True, help_text=_("The same again gets the first answer."))
    verdict = models.TextField(_("verdict"), choices=SignalVerdict.choices)
    message = models.TextField(_("message"), db_default="")
    at = models.DateTimeField(_("at"))

    class Meta:
        db_table = "cb_signals"
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["flow_run_id", "step", "id"], name="cb_signals_of_step")]
        constraints = [
            models.UniqueConstraint(
                fields=["flow_run_id", "step", "dedupe_id"],
                name="cb_signals_one_answer_per_dedupe_id",
                condition=Q(dedupe_id__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.verdict
