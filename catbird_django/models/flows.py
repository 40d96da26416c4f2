"""Flows that code has registered, version by version: their steps, and what each step needs."""

from __future__ import annotations

from django.db import models
from django.db.models import JSONField, Value
from django.utils.translation import gettext_lazy as _


class Flow(models.Model):
    """One version of a flow: a shape that some process has registered. A run stays on the version it began on (F21)."""

    name = models.TextField(_("name"))
    version = models.IntegerField(_("version"), help_text=_("Counts the shapes of the flow, from 1."))
    fingerprint = models.TextField(_("fingerprint"), help_text=_("Hash of the shape: equal hash, same version."))
    queue = models.TextField(_("queue"), db_default="default")
    description = models.TextField(_("description"), db_default="")
    on_fail = models.TextField(_("on fail"), db_default="", help_text=_("The task that is run when a run has failed."))
    deadline = models.DurationField(_("deadline"), null=True, help_text=_("How long a run may take."))
    retention = models.DurationField(
        _("retention"), null=True, help_text=_("How long finished runs are kept; empty means as the settings say.")
    )
    outputs = models.JSONField(_("outputs"), help_text=_("The output of the first of these steps that completed."))
    output_required = models.BooleanField(_("output required"), db_default=False)
    final_count = models.IntegerField(_("final steps"), help_text=_("What the end of a run requires."))
    input_schema = models.JSONField(_("input schema"), null=True)
    output_schema = models.JSONField(_("output schema"), null=True)
    registered_at = models.DateTimeField(
        _("registered at"), help_text=_("The version that was registered last is the one that is run by name.")
    )

    class Meta:
        db_table = "cb_flows"
        verbose_name = _("flow")
        verbose_name_plural = _("flows")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["name", "fingerprint"], name="cb_flows_one_row_per_shape"),
            models.UniqueConstraint(fields=["name", "version"], name="cb_flows_one_row_per_version"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Step(models.Model):
    """A step of one version of a flow."""

    flow = models.ForeignKey(Flow, models.DO_NOTHING, related_name="steps", verbose_name=_("flow"), db_constraint=False)
    position = models.IntegerField(_("position"), help_text=_("Every step comes after what it needs."))
    name = models.TextField(_("name"))
    kind = models.TextField(_("kind"), db_default="step")
    description = models.TextField(_("description"), db_default="")
    handler = models.TextField(_("handler"), db_default="", help_text=_("Where the function lives, as module:name."))
    fingerprint = models.TextField(
        _("fingerprint"), db_default="", help_text=_("Hash of what its handler is called with: equal hash, same call.")
    )
    dependency_count = models.IntegerField(_("dependencies"), db_default=0)
    required_count = models.IntegerField(_("requirements"), db_default=0)
    over = models.TextField(
        _("over"), db_default="", help_text=_("What a map or reduce goes over: a step, or the input.")
    )
    max_failed_items = models.IntegerField(
        _("failed items allowed"), null=True, db_default=0, help_text=_("Of a map; empty: all of them may fail.")
    )
    is_inline = models.BooleanField(
        _("inline"), db_default=False, help_text=_("Run by whoever runs the step before it, if they can.")
    )
    is_atomic = models.BooleanField(
        _("atomic"), db_default=False, help_text=_("What it writes is committed together with its completion.")
    )
    takes_lists = models.BooleanField(_("takes lists of items"), db_default=False)
    takes_input = models.BooleanField(_("takes the input"), db_default=False)
    takes_signal = models.BooleanField(_("takes the signal"), db_default=False)
    condition = models.JSONField(_("condition"), null=True)
    condition_roots = models.JSONField(
        _("condition looks at"), db_default=Value([], JSONField()), help_text=_("What its fields begin with.")
    )
    condition_needs_signal = models.BooleanField(_("condition needs the signal"), db_default=False)
    signal = models.JSONField(_("signal"), null=True, help_text=_("Who may give it, and how."))
    signal_schema = models.JSONField(_("signal schema"), null=True)
    may_skip = models.BooleanField(_("may skip"), db_default=False)
    on_unmet = models.TextField(_("on unmet"), db_default="skip")
    on_exhausted = models.TextField(_("on exhausted"), db_default="fail")
    on_cancel = models.TextField(_("on cancel"), db_default="stop")
    is_final = models.BooleanField(_("final"), db_default=False)
    output_rank = models.IntegerField(_("output rank"), null=True, help_text=_("Place among the flow's outputs."))
    max_retries = models.IntegerField(_("retries"), db_default=0)
    max_lost = models.IntegerField(_("lost deliveries allowed"), db_default=5)
    delay = models.DurationField(_("delay"), null=True)
    deadline = models.DurationField(_("deadline"), null=True)
    options = models.JSONField(_("options"), db_default=Value({}, JSONField()))
    argument_schemas = models.JSONField(_("argument schemas"), db_default=Value({}, JSONField()))
    output_schema = models.JSONField(_("output schema"), null=True)

    class Meta:
        db_table = "cb_steps"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["flow", "name"], name="cb_steps_one_per_name")]

    def __str__(self) -> str:
        return self.name


class StepDependency(models.Model):
    """That a step needs another one to have ended."""

    step = models.ForeignKey(
        Step, models.DO_NOTHING, related_name="dependencies", verbose_name=_("step"), db_constraint=False
    )
    dependency = models.ForeignKey(
        Step, models.DO_NOTHING, related_name="dependents", verbose_name=_("dependency"), db_constraint=False
    )
    parameter = models.TextField(
        _("parameter"), null=True, help_text=_("What takes its output; empty: only the order.")
    )
    is_optional = models.BooleanField(
        _("optional"), help_text=_("Whether the step runs although the other was skipped.")
    )
    is_order_only = models.BooleanField(_("order only"))

    class Meta:
        db_table = "cb_step_dependencies"
        verbose_name = _("dependency")
        verbose_name_plural = _("dependencies")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["step", "dependency"], name="cb_step_dependencies_once")]

    def __str__(self) -> str:
        return f"{self.dependency_id} → {self.step_id}"
