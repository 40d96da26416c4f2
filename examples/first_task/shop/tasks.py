from datetime import timedelta

from catbird_django import Retry, Snooze, TaskContext, task
from shop import carrier
from shop.bank import BankClosed, BankRefused, CardUnknown, charge_card
from shop.drawing import draw


@task(max_retries=5, backoff=(1, 600), no_retry_on=CardUnknown)
def charge(input: int, ctx: TaskContext) -> str:
    """Charge an order."""
    try:
        return charge_card(order_id=input, attempt=ctx.attempt)
    except BankClosed as closed:
        raise Snooze(closed.opens_in) from closed
    except BankRefused as refused:
        raise Retry("the bank asks for patience", after=timedelta(minutes=5)) from refused


@task(breaker=(5, 60), max_retries=3)
def book_parcel(input: int) -> str:
    """Tell the carrier that a parcel is waiting."""
    return carrier.book(order_id=input)


@task(isolation="process", timeout=60, max_retries=1)
def draw_receipt(input: int) -> str:
    """Draw a receipt, with a library that has been known to crash."""
    return draw(f"receipt of order {input}")


@task(concurrency=2, batch_size=10)
def print_label(input: int) -> str:
    """Print the label of an order, on one of two printers."""
    return f"label of order {input} printed"
