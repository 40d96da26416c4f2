"""What people can do to runs: one function each, used alike by pages and commands (U7).

Each asks for the permission, calls the client, and notes in the admin's log who did it. Many runs are done in batches,
each a transaction of its own: what is done is done, whatever becomes of the rest.
"""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.db import transaction

from catbird_django.client.retry import retry_task
from catbird_django.client.signals import signal_flow
from catbird_django.conf import get_settings
from catbird_django.engine.cancel import cancel_tasks
from catbird_django.engine.flow_cancel import cancel_flows
from catbird_django.errors import RunNotFinished, RunNotFound
from catbird_django.models import FlowRun, TaskRun
from catbird_django.monitoring.approvers import may_give
from catbird_django.monitoring.permissions import CANCEL_RUN, OVERRIDE_FOUR_EYES, RETRY_RUN, SEND_SIGNAL
from catbird_django.statuses import RunKind, SignalVerdict

BATCH = 500


class Actor(Protocol):
    """Whoever does something: a person, or a command at the shell."""

    @property
    def name(self) -> str: ...

    def require(self, permission: str) -> None:
        """Raise PermissionDenied if they must not."""

    def may_give(self, run_id: int, step: str, *, using: str) -> bool:
        """Whether the declaration of a step's signal leaves it to them."""

    def note(self, run_ids: Sequence[int], message: str, *, kind: RunKind = RunKind.TASK) -> None:
        """Keep on record that they did something to these runs."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the project. What they do is noted in the admin's log."""

    user: Any

    @property
    def name(self) -> str:
        return str(self.user.get_username())

    def require(self, permission: str) -> None:
        if not self.user.has_perm(permission):
            raise PermissionDenied(permission)

    def may_give(self, run_id: int, step: str, *, using: str) -> bool:
        return may_give(self.user, run_id, step, using=using)

    def note(self, run_ids: Sequence[int], message: str, *, kind: RunKind = RunKind.TASK) -> None:
        if not run_ids or not apps.is_installed("django.contrib.admin"):
            return
        from django.contrib.admin.models import CHANGE, LogEntry  # a model of an app that need not be installed

        model = FlowRun if kind is RunKind.FLOW else TaskRun
        runs: Any = [model(pk=run_id) for run_id in run_ids]
        LogEntry.objects.log_actions(self.user.pk, runs, CHANGE, message)


@dataclass(frozen=True, slots=True)
class Shell:
    """Somebody at the command line, who could as well use the database: they may do everything."""

    on_behalf_of: str = ""

    @property
    def name(self) -> str:
        if self.on_behalf_of:
            return self.on_behalf_of
        try:
            return f"command:{getpass.getuser()}"
        except (KeyError, OSError):  # an account without a name, as in some containers
            return "command"

    def require(self, permission: str) -> None:
        pass

    def may_give(self, run_id: int, step: str, *, using: str) -> bool:  # noqa: ARG002 - as a Person's
        return True

    def note(self, run_ids: Sequence[int], message: str, *, kind: RunKind = RunKind.TASK) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of each run, as a word; and, of those run again, the new run."""

    verdicts: dict[int, str] = field(default_factory=dict)
    successors: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.verdicts.values())


def cancel_runs(
    actor: Actor,
    run_ids: Sequence[int],
    *,
    kind: RunKind = RunKind.TASK,
    reason: str = "",
    using: str | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> Answers:
    """Cancel these runs, of tasks or of flows; say of each 'canceled', 'canceling', 'finished' or 'unknown'.

    Raise PermissionDenied if the actor must not. `done` is told after each batch how many there were so far.
    """
    actor.require(CANCEL_RUN)
    settings = get_settings()
    using = using or settings.database
    reason = reason.replace("\x00", "")
    cancel = cancel_flows if kind is RunKind.FLOW else cancel_tasks
    answers = Answers()
    for batch in _batches(run_ids):
        with transaction.atomic(using=using):
            # By id, whatever the order on the page: one lock order for everyone.
            verdicts = cancel(sorted(batch), reason=reason, actor=actor.name, notify=settings.notify, using=using)
            told = {run_id: verdict.value for run_id, verdict in zip(sorted(batch), verdicts, strict=True)}
            stopped = [run_id for run_id in batch if told[run_id] in ("canceled", "canceling")]
            actor.note(stopped, f"Canceled: {reason}" if reason else "Canceled.", kind=kind)
        answers.verdicts.update({run_id: told[run_id] for run_id in batch})
        done(len(answers.verdicts))
    return answers


def send_signal(
    actor: Actor,
    run_id: int,
    step: str,
    payload: Any,
    *,
    dedupe_id: str | None = None,
    override_four_eyes: bool = False,
    using: str | None = None,
) -> None:
    """Give a step of a flow run its signal.

    Raise PermissionDenied if the actor must give none at all, and SignalRefused when it does not count: also when it is
    not left to this actor, which is on record then.
    """
    actor.require(SEND_SIGNAL)
    if override_four_eyes:
        actor.require(OVERRIDE_FOUR_EYES)
    using = using or get_settings().database
    refusal = None if actor.may_give(run_id, step, using=using) else SignalVerdict.NOT_ALLOWED
    signal_flow(
        run_id,
        step,
        payload,
        actor=actor.name,
        dedupe_id=dedupe_id,
        override_four_eyes=override_four_eyes,
        refusal=refusal,
        using=using,
    )
    actor.note([run_id], f"Signaled {step}.", kind=RunKind.FLOW)


def retry_runs(actor: Actor, run_ids: Sequence[int], *, using: str | None = None) -> Answers:
    """Run these again, each as a new run; say of each 'queued', 'live' (it has not ended) or 'unknown'.

    Raise PermissionDenied if the actor must not.
    """
    actor.require(RETRY_RUN)
    using = using or get_settings().database
    answers = Answers()
    for batch in _batches(run_ids):
        with transaction.atomic(using=using):
            for run_id in batch:
                answers.verdicts[run_id] = _retry(run_id, actor, answers.successors, using)
            actor.note([run_id for run_id in batch if run_id in answers.successors], "Run again.")
    return answers


def _retry(run_id: int, actor: Actor, successors: dict[int, int], using: str) -> str:
    try:
        successors[run_id] = retry_task(run_id, actor=actor.name, using=using).id
    except RunNotFound:
        return "unknown"
    except RunNotFinished:
        return "live"
    return "queued"


def _batches(run_ids: Sequence[int]) -> Iterator[list[int]]:
    """The ids, each once, in parts that one transaction should carry."""
    remaining = iter(dict.fromkeys(run_ids))
    while batch := list(islice(remaining, BATCH)):
        yield batch
