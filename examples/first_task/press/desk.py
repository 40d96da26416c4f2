from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from catbird_django import (
    RunCanceled,
    RunExpired,
    RunSkipped,
    TaskFailed,
    TaskHandle,
    WaitTimeout,
)
from press.tasks import Issue, Sent, build_archive, check_address, index_page, send_issue


def announce(issue: Issue, *, deadline: datetime, trace: str) -> TaskHandle[Sent]:
    """Send an issue in five minutes, behind everything that is urgent, and not at all after the deadline."""
    return send_issue.run(
        issue,
        queue="bulk",
        priority=-10,
        delay=timedelta(minutes=5),
        expires_at=deadline,
        headers={"trace": trace},
        tags=["newsletter", f"issue-{issue.number}"],
    )


def send_once(issue: Issue) -> TaskHandle[Sent]:
    """Send an issue, however often this is called: a second call gets the handle of the first one's run."""
    return send_issue.run(issue, idempotency_key=f"issue-{issue.number}")


def rebuild(year: int) -> TaskHandle[str]:
    """Build the archive of a year, unless it is being built or about to be; later it may be built again."""
    return build_archive.run(year, concurrency_key=f"archive-{year}")


def page_was_edited(page_id: int, text: str) -> TaskHandle[int]:
    """Index a page ten seconds after the last edit, with its last text."""
    return index_page.run({"text": text}, debounce_key=f"page-{page_id}", delay=10)


def check_addresses(addresses: Iterable[str]) -> list[TaskHandle[bool]]:
    """Check addresses; their handles come in order. All of them are queued, or none."""
    return check_address.run_many(addresses, queue="bulk")


def send_now(issue: Issue) -> str:
    """Send an issue, and tell whoever asked how it went."""
    with transaction.atomic():
        handle = send_issue.run(issue, priority=100)  # with whatever else is to be committed
    return how_it_went(handle)


def how_it_went(handle: TaskHandle[Sent]) -> str:
    """Wait for a run outside of the transaction that queued it; every way to end has an error of its own."""
    try:
        return f"{handle.wait(timeout=10).copies} copies are on their way"
    except TaskFailed as failed:
        return f"not sent: {failed.error['message']}"
    except (RunCanceled, RunSkipped, RunExpired) as ended:
        return f"not sent: {ended}"
    except WaitTimeout:
        return "still at it; ask again later"


def stop(run_id: int, *, editor: str) -> bool:
    """Cancel a run, from any process that knows its id; say whether that was in time."""
    return TaskHandle(run_id).cancel("wrong issue", actor=editor) != "completed"


def again(run_id: int, *, editor: str) -> int:
    """Run something again that has ended; it is a new run, with the same input, that knows where it comes from."""
    return TaskHandle(run_id).retry(actor=editor).id
