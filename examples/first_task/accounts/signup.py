from django.contrib.auth.models import User
from django.db import transaction

from accounts.tasks import welcome
from catbird_django import TaskHandle


def sign_up(username: str, email: str) -> TaskHandle[str]:
    """Make a user and have them welcomed: both happen, or neither."""
    with transaction.atomic():
        user = User.objects.create_user(username, email)
        return welcome.run(user.pk)
