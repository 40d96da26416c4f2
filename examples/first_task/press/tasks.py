from dataclasses import dataclass
from datetime import timedelta

from catbird_django import Cancel, Task, TaskContext, TaskFailure, task
from press import post


@dataclass
class Issue:
    number: int
    recipients: list[str]


@dataclass
class Sent:
    number: int
    copies: int


@task
def tell_editor(input: TaskFailure[Issue]) -> str:
    """Say that an issue could not be sent; runs once, after the last attempt."""
    error = input.error
    return f"issue {input.input.number} failed after {input.attempts} attempts: {error.type}: {error.message}"


@task(queue="mail", timeout=600, max_retries=2, on_fail=tell_editor, retention=timedelta(days=90))
def send_issue(input: Issue, ctx: TaskContext) -> Sent:
    """Send an issue of the newsletter to everybody."""
    if not input.recipients:
        raise Cancel("nobody wants it")
    for done, recipient in enumerate(input.recipients):
        ctx.progress(done, len(input.recipients), f"to {recipient}")
        post.send(recipient, f"Issue {input.number}")
    ctx.log(f"sent {len(input.recipients)} copies at attempt {ctx.attempt}")
    return Sent(number=input.number, copies=len(input.recipients))


@task
async def check_address(input: str) -> bool:
    """Ask whether an address is good. A worker does many of these at the same time, on one thread."""
    return await post.answers(input)


@dataclass
class Donation:
    donor: str
    amount: int


@task(condition="input.amount gte 10")
def thank(input: Donation) -> str:
    """Thank for a donation, if it is worth a stamp."""
    return f"Dear {input.donor}, thank you!"


@task
def build_archive(input: int) -> str:
    """Build the archive of a year; two at the same time would overwrite each other."""
    return f"archive of {input}"


@task
def index_page(input: dict[str, str]) -> int:
    """Bring the search index up to date with a page."""
    return len(input["text"].split())


@task(on_cancel="finish")
def print_copies(input: int) -> int:
    """Print so many copies. Once the press is running it is cheaper to let it run."""
    return input


translate = Task("translate", input=str, output=str)  # handled by another project, on the same database
