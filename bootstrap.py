#!/usr/bin/env python3
"""From a fresh checkout to the demo or the tests, with nothing but Python: python3 bootstrap.py COMMAND

Commands:
  demo [options]      show it: an embedded PostgreSQL, the admin, a worker and some runs, until Ctrl-C
                      --port N            serve on this port (default: the first free one from 8000 on)
                      --no-work           start everything, but enqueue nothing
                      --until-finished    stop by itself once the demo's work is finished
  test [pytest args]  run the tests, for example: python3 bootstrap.py test -x -k greet
  chaos [options]     make faults happen to real workers, on a PostgreSQL of its own, and check what must hold
                      --rounds N          play each scenario so often (default: 1)
                      --only NAME,…       only scenarios with one of these in their name; --list names them
                      --seed S            make the same choices as another campaign
                      --json FILE         write every round's result there; --help tells the rest
  bench tasks         measure tasks next to other engines, on a PostgreSQL of its own; --help tells the options
  bench flows         measure flows likewise
  bench profile       show where a worker's CPU time goes while it drains a queue
  check               run what guards the code: linter, formatter, types, layers, migrations, compose file, docs
  docs                build the documentation into docs/_build/html

Each makes .venv beside this file and installs the pinned packages it needs, once.
DATABASE_URL=postgresql://USER:PASSWORD@HOST:PORT/NAME makes it use a PostgreSQL (15 or newer) of your own.
"""

import sys

# An older Python must get this far, so this file has no syntax newer than 3.6, and nothing that is evaluated on
# definition and newer than that comes before this line.
if sys.version_info < (3, 11):  # noqa: UP036 - an older Python is exactly what is asked about
    sys.exit(
        "bootstrap: Python 3.11 or newer is needed, and this is {}.{}: install one and run it by its name, "
        "as in `python3.11 bootstrap.py demo`".format(*sys.version_info)
    )

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
VENV_LOCK = ROOT / ".venv.lock"
# There while pip works; found later, it means that pip was killed and that the packages cannot be trusted.
UNFINISHED = VENV / ".unfinished"

RUNTIME = "requirements.txt"
TEST = "requirements/test.txt"
BROWSER = "requirements/browser.txt"
CHECK = "requirements/check.txt"

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SECONDS_PER_LINE = 5


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say((__doc__ or "").strip())
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        say(f"bootstrap: there is no command {command!r}: choose one of {', '.join(COMMANDS)}, or --help")
        return 2
    if os.name == "nt":
        fail("this runs on Linux and macOS: on Windows use WSL, or `docker compose up`")
    # A terminated installation must end its pip as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return COMMANDS[command](rest)


def demo(arguments: list[str]) -> NoReturn:
    install(RUNTIME)
    ensure_database_answers()
    become("manage.py", "catbird_demo", *arguments)


def test(arguments: list[str]) -> NoReturn:
    if any(shutil.which(name) for name in CHROMIUM):
        install(TEST, BROWSER)
    else:
        install(TEST)
    ensure_database_answers()
    become("-m", "pytest", *arguments)


def check(arguments: list[str]) -> int:
    refuse(arguments)
    install(TEST, CHECK)
    guards = {
        "lint": ["-m", "ruff", "check"],
        "format": ["-m", "ruff", "format", "--check"],
        "types": ["-m", "mypy"],
        "layers": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        "django": ["manage.py", "check"],
        "migrations": ["manage.py", "makemigrations", "--check", "--dry-run"],
        "compose": ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
    }
    if (ROOT / "docs" / "conf.py").exists():
        guards["docs"] = sphinx()
    failed = [name for name, guard in guards.items() if not passes(name, guard)]
    say(f"Failed: {', '.join(failed)}" if failed else "All is well.")
    return 1 if failed else 0


def docs(arguments: list[str]) -> int:
    refuse(arguments)
    install(TEST, CHECK)
    if not passes("docs", sphinx()):
        return 1
    say(f"Open {ROOT / 'docs' / '_build' / 'html' / 'index.html'}")
    return 0


def bench(arguments: list[str]) -> NoReturn:
    install(RUNTIME)
    become("-m", "benchmarks", *arguments)


def chaos(arguments: list[str]) -> NoReturn:
    install(TEST)
    become("-m", "tests.chaos", *arguments)


COMMANDS = {"demo": demo, "test": test, "chaos": chaos, "bench": bench, "check": check, "docs": docs}


def sphinx() -> list[str]:
    return ["-m", "sphinx", "-W", "-q", "-b", "html", "docs", "docs/_build/html"]


def passes(name: str, guard: list[str]) -> bool:
    say(f"--- {name}")
    return subprocess.run([str(VENV_PYTHON), *guard], cwd=ROOT).returncode == 0


def refuse(arguments: list[str]) -> None:
    if arguments:
        fail(f"this command takes no arguments, and was given {' '.join(arguments)}")


def become(*arguments: str) -> NoReturn:
    """Turn this process into the virtual environment's Python: signals and the exit code are then its own."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(VENV_PYTHON, [str(VENV_PYTHON), *arguments])


def ensure_database_answers() -> None:
    """Say in one line what is wrong with a database of the user's own; the embedded one is started when needed."""
    if "DATABASE_URL" in os.environ or (ROOT / ".env").exists():
        answer = subprocess.run([str(VENV_PYTHON), "-m", "project.preflight"], cwd=ROOT)
        if answer.returncode != 0:
            sys.exit(answer.returncode)


# The virtual environment


def install(*requirements: str) -> None:
    """See to it that .venv is there and holds these requirement files' packages; quick when it does."""
    if is_installed(requirements):
        return
    with venv_lock() as lock:
        if not is_sound():
            make_venv(lock)
        missing = [name for name in requirements if not is_stamped(name)]
        if missing:
            install_packages(missing, lock)


def is_installed(requirements: tuple[str, ...]) -> bool:
    return VENV_PYTHON.exists() and not UNFINISHED.exists() and all(is_stamped(name) for name in requirements)


def is_sound() -> bool:
    """Try the environment's Python: a name that exists is no promise that it runs, or has pip."""
    if UNFINISHED.exists() or not VENV_PYTHON.exists():
        return False
    trial = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([str(VENV_PYTHON), "-c", trial], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def make_venv(lock: int) -> None:
    if VENV.exists():
        say("The .venv here is only half made: making it anew.")
        shutil.rmtree(VENV)
    if importlib.util.find_spec("ensurepip") is None:
        fail_without_ensurepip()
    VENV.mkdir()
    UNFINISHED.touch()
    words = run_with_progress("Making .venv", [sys.executable, "-m", "venv", str(VENV)], lock)
    if words is not None:
        shutil.rmtree(VENV, ignore_errors=True)
        if "ensurepip" in words:
            fail_without_ensurepip()
        say(words)
        fail("the virtual environment could not be made: see above, mend it, and run this again")
    UNFINISHED.unlink()


def fail_without_ensurepip() -> NoReturn:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fail(
        "this Python cannot make virtual environments, because ensurepip is missing: "
        f"install it (Debian and Ubuntu: `apt-get install python{version}-venv`) and run this again"
    )


def install_packages(requirements: list[str], lock: int) -> None:
    command = [str(VENV_PYTHON), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--retries", "2"]
    # Compiling all of it would take as long again; what is imported is compiled then.
    command.append("--no-compile")
    for name in requirements:
        command += ["-r", str(ROOT / name)]
    UNFINISHED.touch()
    words = run_with_progress(f"Installing {count_packages(requirements)} packages", command, lock)
    # Not reached when we are killed or interrupted, with pip in the middle of its work.
    UNFINISHED.unlink()
    if words is not None:
        say(words)
        fail(
            f"pip could not install {' and '.join(requirements)}: see above, check the network (or pip's settings), "
            "and run this again"
        )
    for name in requirements:
        stamp_of(name).parent.mkdir(exist_ok=True)
        stamp_of(name).write_text(digest_of(name))


def count_packages(requirements: list[str]) -> int:
    pinned: set[str] = set()
    for name in requirements:
        pinned.update(re.findall(r"^([\w.-]+)==", (ROOT / name).read_text(), re.MULTILINE))
    return len(pinned)


def is_stamped(requirement: str) -> bool:
    """Say whether this very content of the file was installed."""
    stamp = stamp_of(requirement)
    return stamp.exists() and stamp.read_text() == digest_of(requirement)


def stamp_of(requirement: str) -> Path:
    return VENV / ".installed" / requirement.replace("/", "-")


def digest_of(requirement: str) -> str:
    return hashlib.sha256((ROOT / requirement).read_bytes()).hexdigest()


@contextlib.contextmanager
def venv_lock() -> "Iterator[int]":
    """Hold .venv for us alone. The kernel gives the lock back when its holder ends, however that is."""
    import fcntl  # not on Windows, where we never get here

    try:
        descriptor = os.open(VENV_LOCK, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        fail(f"cannot write to {ROOT} ({error.strerror}): copy the checkout to a directory of yours and run it there")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another bootstrap.py that is working on .venv ...")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


# What is said meanwhile


def run_with_progress(what: str, command: list[str], lock: int) -> "str | None":
    """Run a command, showing only that it goes on; give its output if it failed, None if all went well.

    It inherits the lock: should we be killed, nobody else touches .venv before the command has ended too.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock])
        try:
            wait_with_progress(process, what, started)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.returncode == 0:
            return None
        output.seek(0)
        return output.read().decode(errors="replace").strip() or "(it said nothing)"


def wait_with_progress(process: "subprocess.Popen[bytes]", what: str, started: float) -> None:
    """Show the passing seconds: on a terminal in one line that changes, elsewhere in a new line now and then."""
    on_terminal = sys.stdout.isatty()
    before, after = ("\r", "") if on_terminal else ("", "\n")
    say(f"{what} ...", end=after)
    while process.poll() is None:
        try:
            process.wait(1 if on_terminal else SECONDS_PER_LINE)
        except subprocess.TimeoutExpired:
            say(f"{before}{what} ... {time.monotonic() - started:.0f} s", end=after)
    outcome = f"done in {time.monotonic() - started:.0f} s" if process.returncode == 0 else "failed"
    say(f"{before}{what} ... {outcome}")


def say(text: str, *, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def fail(message: str) -> NoReturn:
    print(f"bootstrap: {message}", file=sys.stderr, flush=True)
    sys.exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("\nStopped.")
        sys.exit(130)
