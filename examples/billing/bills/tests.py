from django.test import TestCase

from bills.flows import Report, Upload, invoices
from bills.models import Booking, Import
from catbird_django.testing import assert_completed, assert_failed, failing, simulate, work_until_idle


class ImportTests(TestCase):
    def test_what_can_be_booked_is_booked_and_the_rest_is_told(self) -> None:
        run = invoices.run(Upload("may.csv", "A1,10.50\nA2,much\nA3,4.50"))

        work_until_idle()

        complaint = "row 2: could not convert string to float: 'much'"
        self.assertEqual(assert_completed(run), Report("2 invoices, 15.00 in all", [complaint]))
        self.assertEqual(list(Booking.objects.order_by("number").values_list("cents", flat=True)), [1050, 450])
        self.assertEqual(Import.objects.get().summary, "2 invoices, 15.00 in all")

    def test_an_empty_file_needs_no_more_steps(self) -> None:
        run = invoices.run(Upload("june.csv", ""))

        ran = work_until_idle()

        self.assertEqual(ran.names, ["invoice_import.read"])
        self.assertEqual(assert_completed(run), Report("nothing to book", []))
        self.assertEqual(run.steps()["book"], "canceled")

    def test_an_invoice_that_was_booked_before_stops_the_import(self) -> None:
        Booking.objects.create(number="A1", cents=1050)
        run = invoices.run(Upload("may.csv", "A1,10.50"))

        work_until_idle()

        assert_failed(run, "duplicate key")
        self.assertEqual(Booking.objects.count(), 1)

    def test_a_row_that_fails_by_accident_is_booked_all_the_same(self) -> None:
        run = invoices.run(Upload("may.csv", "A1,10.50\nA2,4.50"))

        with failing("invoice_import.book", ConnectionError("the connection is gone"), times=1):
            ran = simulate(run)

        self.assertEqual(sorted(ran.of("invoice_import.book").outcomes), ["completed", "completed", "retrying"])
        self.assertEqual(Booking.objects.count(), 2)
