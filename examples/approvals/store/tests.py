from django.test import TestCase

from catbird_django.testing import assert_completed, assert_failed, failing, replaced, work_until_idle
from store.flows import Approval, Check, Order, orders


class OrderTests(TestCase):
    def test_a_cheap_order_is_shipped_at_once(self) -> None:
        run = orders.run(Order(id=1, total=5.0))

        ran = work_until_idle()

        self.assertEqual(ran.names, ["order.validate", "order.ship"])
        self.assertEqual(assert_completed(run), "shipped 1 without asking")

    def test_an_expensive_order_waits_for_somebody(self) -> None:
        run = orders.run(Order(id=2, total=5000.0))
        work_until_idle()
        self.assertEqual(run.steps()["approve"], "waiting_for_signal")

        run.signal("approve", Approval(by="kim", ok=False))
        work_until_idle()

        self.assertEqual(assert_completed(run), "refunded 2")

    def test_an_order_fails_with_its_shipping(self) -> None:
        run = orders.run(Order(id=3, total=5.0))

        with failing("order.ship", ConnectionError("the carrier is away")):
            ran = work_until_idle()

        self.assertEqual(ran.of("order.ship").outcomes, ["failed"])
        assert_failed(run, "the carrier is away")

    def test_who_validates_decides(self) -> None:
        run = orders.run(Order(id=4, total=5.0))

        with replaced("order.validate", output=Check(total=5000.0)):
            work_until_idle()

        self.assertEqual(run.steps()["approve"], "waiting_for_signal")
