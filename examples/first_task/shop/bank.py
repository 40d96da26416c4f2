"""A bank with moods, so that the example has something to fail with."""

from datetime import timedelta


class BankClosed(Exception):
    opens_in = timedelta(hours=9)


class BankRefused(Exception):
    pass


class CardUnknown(Exception):
    pass


MOODS: dict[int, list[Exception]] = {}
"""What happens to the attempts at an order, one after the other; afterwards it is charged."""


def charge_card(*, order_id: int, attempt: int) -> str:
    moods = MOODS.get(order_id, [])
    if moods:
        raise moods.pop(0)
    return f"order {order_id} charged at attempt {attempt}"
