"""What the rest of the project calls: place an order, see what waits, decide."""

from catbird_django import FlowHandle, SignalRefused, signal_flow
from catbird_django.models import StepRun
from store.flows import Approval, Order, orders


def place(order: Order, *, by: str) -> FlowHandle[str]:
    """Start the run of an order, in the current transaction; placing it again gives the same run."""
    return orders.run(order, actor=by, idempotency_key=f"order-{order.id}")


def waiting() -> list[int]:
    """The runs that wait for somebody to approve or refuse the order, oldest first."""
    steps = StepRun.objects.waiting_for_signal().filter(step__name="approve", flow_run__flow_name="order")
    return list(steps.order_by("flow_run").values_list("flow_run", flat=True))


def decide(run_id: int, *, by: str, ok: bool) -> str:
    """Approve or refuse an order; say whether it counted."""
    try:
        signal_flow(run_id, "approve", Approval(by=by, ok=ok), actor=by)
    except SignalRefused as refusal:
        return str(refusal.verdict.label)  # somebody else was faster, or there is nothing to decide
    return "thank you"
