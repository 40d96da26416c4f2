"""What is booked, and what came of each file."""

from django.db import models


class Booking(models.Model):
    """An invoice that is to be paid. Its number keeps it from being booked twice."""

    number = models.CharField(max_length=40, unique=True)
    cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.number


class Import(models.Model):
    """A file that was worked off."""

    file = models.CharField(max_length=200)
    summary = models.TextField()

    def __str__(self) -> str:
        return self.file
