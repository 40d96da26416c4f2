"""Shows catbird_django at work: the admin, a worker and a handful of runs, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, NoReturn

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connection

from project.database import why_unusable
from project.demo.children import Child, start_child, stop_children
from project.demo.ports import HOST, PortError, bind
from project.demo.run_log import describe, finished_runs, latest_run_id
from project.demo.work import enqueue_demo_work

if TYPE_CHECKING:
    import socket
    from argparse import ArgumentParser
    from collections.abc import Iterator
    from pathlib import Path

    from catbird_django.models import TaskRun

SECONDS_TO_SERVE = 30.0
SECONDS_TO_ANSWER = 5.0
SECONDS_TO_STOP = 5.0
GLANCE = 0.2
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

GUIDE = """
  Open    {url}
  Log in  {login}
  Click   Catbird, Task runs: every run with its input, its answer and its times.
          The failed one, of task `divide`, has the error and its traceback.
          Catbird, Flow runs: a newsletter that is written for forty readers, one by one.
          Catbird, Tasks: what the code has registered. Catbird, Workers: who is working.
  Stop    Ctrl-C
"""


class Command(BaseCommand):
    help = __doc__
    # The database is looked at, migrated and explained by the command itself.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, help="the port to serve on (default: the first free one from 8000 on)")
        parser.add_argument("--no-work", action="store_true", help="start everything, but enqueue nothing")
        parser.add_argument(
            "--until-finished", action="store_true", help="stop by itself once the demo's work is finished"
        )

    def handle(self, *_args: Any, port: int | None, no_work: bool, until_finished: bool, **_options: Any) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, interrupt)
        # Being asked to stop is the ordinary end, and no error.
        with suppress(KeyboardInterrupt), ExitStack() as at_the_end:
            self.show(port, work=not no_work, until_finished=until_finished, at_the_end=at_the_end)

    def show(self, port: int | None, *, work: bool, until_finished: bool, at_the_end: ExitStack) -> None:
        listening = at_the_end.enter_context(bind_or_explain(port))
        port = listening.getsockname()[1]
        self.prepare_database()
        login = self.ensure_login()
        children = self.start_children(listening, at_the_end)
        wait_for_answer(port, children)

        before = latest_run_id()
        wanted = enqueue_demo_work() if work else set()
        self.stdout.write(GUIDE.format(url=f"http://{HOST}:{port}/admin/", login=login))
        self.stdout.flush()
        self.follow(children, finished_runs(after=before), wanted, until_finished=until_finished)

    def prepare_database(self) -> None:
        embedded = "EMBEDDED" in connection.settings_dict
        self.say("Starting the embedded PostgreSQL ..." if embedded else "Using the database of DATABASE_URL ...")
        if complaint := why_unusable(connection):
            raise CommandError(complaint)
        self.say("Migrating ...")
        try:
            call_command("migrate", verbosity=0, interactive=False)
        except Error as error:
            raise CommandError(f"the database cannot be migrated: {' '.join(str(error).split())}") from error

    def ensure_login(self) -> str:
        """Make the demo's superuser if there is none, only ever in DEBUG; say how to log in."""
        admin = User.objects.filter(username="admin").first()
        if admin is None and settings.DEBUG:
            admin = User.objects.create_superuser(username="admin", password="admin")  # noqa: S106 - announced, local, DEBUG only
        if admin is not None and admin.check_password("admin"):
            return "admin, password admin"
        return "with a superuser of yours (manage.py createsuperuser makes one)"

    def start_children(self, listening: socket.socket, at_the_end: ExitStack) -> list[Child]:
        self.say("Starting the web server and a worker ...")
        logs = make_log_directory()
        children: list[Child] = []
        at_the_end.callback(self.stop, children)
        web = [sys.executable, "-m", "project.demo.web", str(listening.fileno())]
        worker = [sys.executable, "manage.py", "catbird_worker", "--noreload"]
        children.append(start_child("web server", web, log=logs / "web.log", keep=[listening.fileno()]))
        listening.close()  # from here on the port is the web server's, and ends with it
        children.append(start_child("worker", worker, log=logs / "worker.log"))
        return children

    def stop(self, children: list[Child]) -> None:
        # We are stopping already, and for a few seconds at most: impatience must not leave anything running.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self.say("Stopping ...")
        stop_children(children, patience=SECONDS_TO_STOP)
        self.say("Stopped.")

    def follow(
        self, children: list[Child], runs: Iterator[TaskRun | None], wanted: set[int], *, until_finished: bool
    ) -> None:
        """Print runs as they finish, until interrupted or, if asked, until the demo's own are all finished."""
        unfinished = set(wanted)
        for run in runs:
            if run is None:
                ensure_running(children)
                time.sleep(GLANCE)
            else:
                self.say(describe(run))
                unfinished.discard(run.pk)
            if until_finished and not unfinished:
                return

    def say(self, text: str) -> None:
        self.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}")
        self.stdout.flush()


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def bind_or_explain(port: int | None) -> socket.socket:
    try:
        return bind(port)
    except PortError as error:
        raise CommandError(str(error)) from error


def make_log_directory() -> Path:
    logs: Path = settings.HOME / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write to {logs} ({error.strerror}): use a checkout you may write to") from error
    return logs


def wait_for_answer(port: int, children: list[Child]) -> None:
    deadline = time.monotonic() + SECONDS_TO_SERVE
    while not answers(port):
        ensure_running(children)
        if time.monotonic() > deadline:
            raise CommandError(f"the web server does not answer: see {children[0].log}")
        time.sleep(GLANCE)


def answers(port: int) -> bool:
    # Not urllib: it would ask a proxy that is meant for other addresses.
    asked = HTTPConnection(HOST, port, timeout=SECONDS_TO_ANSWER)
    try:
        asked.request("HEAD", "/admin/login/")
        return asked.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, HTTPException):
        return False
    finally:
        asked.close()


def ensure_running(children: list[Child]) -> None:
    for child in children:
        if not child.is_running():
            raise CommandError(f"the {child.name} ended by itself; its last words ({child.log}):\n{child.last_words()}")
