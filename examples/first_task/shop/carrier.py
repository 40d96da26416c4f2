"""A carrier whose service may be down, so that the example has something to wait for."""


class CarrierDown(Exception):
    pass


is_down = False


def book(*, order_id: int) -> str:
    if is_down:
        raise CarrierDown("no answer")
    return f"parcel of order {order_id} booked"
