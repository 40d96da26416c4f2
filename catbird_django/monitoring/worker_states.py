"""How a worker is doing, as far as the database knows."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy


class WorkerState(TextChoices):
    """A silent worker has neither stopped nor been heard of for `WORKER_TTL`: it is probably gone."""

    ALIVE = "alive", pgettext_lazy("worker state", "alive")
    SILENT = "silent", pgettext_lazy("worker state", "silent")
    STOPPED = "stopped", pgettext_lazy("worker state", "stopped")
