import logging

from django.contrib.auth.models import User
from django.core.mail import send_mail

from catbird_django import TaskContext, task

logger = logging.getLogger(__name__)


@task(queue="mail")
def welcome(input: int, ctx: TaskContext) -> str:
    """Mail a new user; the input is the user's id."""
    user = User.objects.get(pk=input)
    send_mail("Welcome", f"Hello {user.username}!", None, [user.email])
    logger.info("welcomed", extra={"user_id": user.pk, "run_id": ctx.run_id})
    return user.email
