"""A file of invoices: its rows are read, each is checked and booked by itself, and a report says what came of them."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import IntegrityError

from bills.models import Booking, Import
from catbird_django import Flow, ItemError, complete_early


@dataclass
class Upload:
    file: str
    text: str


@dataclass
class Row:
    number: str
    amount: str


@dataclass
class Invoice:
    number: str
    cents: int


@dataclass
class Totals:
    booked: int = 0
    cents: int = 0


@dataclass
class Report:
    summary: str
    complaints: list[str]


invoices = Flow("invoice_import", input=Upload, output="keep", description="Book the invoices of a file.")


@invoices.step
def read(input: Upload) -> list[Row]:
    rows = [Row(number, amount) for number, amount in csv.reader(input.text.splitlines())]
    if not rows:
        complete_early(Report("nothing to book", []), "the file is empty")
    return rows


@invoices.map(over="read", on_item_failure="collect", max_retries=2, no_retry_on=ValueError)
def check(item: Row) -> Invoice:
    cents = round(float(item.amount) * 100)
    if cents <= 0:
        raise ValueError(f"{item.amount} is no amount")
    return Invoice(item.number, cents)


@invoices.map(over="check", atomic=True, max_retries=3, no_retry_on=IntegrityError)
def book(item: Invoice | ItemError) -> int:
    if isinstance(item, ItemError):
        return 0
    Booking.objects.create(number=item.number, cents=item.cents)
    return item.cents


@invoices.reduce(over="book", initial=Totals())
def total(acc: Totals, item: int) -> Totals:
    return Totals(acc.booked + bool(item), acc.cents + item)


@invoices.step(inline=True)
def summary(total: Totals) -> str:
    return f"{total.booked} invoices, {total.cents / 100:.2f} in all"


@invoices.step
def complaints(check: Iterable[Invoice | ItemError]) -> list[str]:
    return [f"row {one.index + 1}: {one.message}" for one in check if isinstance(one, ItemError)]


@invoices.step(atomic=True)
def keep(input: Upload, summary: str, complaints: list[str]) -> Report:
    Import.objects.create(file=input.file, summary=summary)
    return Report(summary, complaints)
