"""Says which directory is where, and under which account the server runs.

Below the home, for PostgreSQL 18:

    cluster-18.locks/    start, users and watcher (see launcher.py); ours
    cluster-18/          data/, log and the socket; belongs to the account that runs the server

Each major version is a cluster of its own, so a newer wheel starts afresh and two versions can run side by side.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from project.embedded.errors import EmbeddedPostgresError

# PostgreSQL does not run as root: these accounts serve it there, the first that exists.
ACCOUNTS_FOR_ROOT = ("postgres", "nobody")

# The path of a Unix socket has at most 103 bytes on macOS (107 on Linux), `/.s.PGSQL.5432` included.
LONGEST_SOCKET_DIRECTORY = 85

# Short, and the same for every process: TMPDIR is neither.
SHORT_PLACE = Path("/tmp")  # noqa: S108 - ownership of what we find there is checked before use
ROOT_PLACE = Path("/var/lib")


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group that the server runs as, when that is not us."""

    user: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where one cluster keeps its things."""

    home: Path
    cluster: Path
    socket_directory: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.cluster / "data"

    @property
    def log(self) -> Path:
        return self.cluster / "log"

    @property
    def locks(self) -> Path:
        return self.home / f"{self.cluster.name}.locks"

    @property
    def start_lock(self) -> Path:
        return self.locks / "start"

    @property
    def users_lock(self) -> Path:
        return self.locks / "users"

    @property
    def watcher_lock(self) -> Path:
        return self.locks / "watcher"

    @property
    def socket(self) -> Path:
        return self.socket_directory / ".s.PGSQL.5432"

    @property
    def owner(self) -> int:
        return self.account.user if self.account else os.geteuid()

    @property
    def is_elsewhere(self) -> bool:
        return self.cluster.parent != self.home

    @property
    def elsewhere_note(self) -> Path:
        return self.home / f"{self.cluster.name}.elsewhere"


def layout_of(home: Path, *, major: int) -> Layout:
    """Work out the layout of the cluster of that major version; only the home itself is made."""
    home = home.absolute()
    make_home(home)
    name = f"cluster-{major}"
    account = account_for(home / name) if os.geteuid() == 0 else None
    cluster = home / name
    if account and not can_enter(home, account):
        cluster = ROOT_PLACE / f"catbird-{short_hash(home)}" / name
    return Layout(home=home, cluster=cluster, socket_directory=socket_directory_of(cluster), account=account)


def make_home(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"cannot make {home} for the embedded PostgreSQL ({error.strerror}): "
            "use a directory you may write to, or set DATABASE_URL"
        ) from error


def account_for(cluster: Path) -> Account:
    """Choose an account for a server that root starts: the owner of what is there, else a system account."""
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ACCOUNTS_FOR_ROOT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and there is no account `postgres` or `nobody` to run it as: "
        "run this as an ordinary user, or set DATABASE_URL"
    )


def can_enter(directory: Path, account: Account) -> bool:
    """Say whether the account may walk down to the directory, going by owners and the bits for everybody."""
    for place in (directory, *directory.parents):
        status = place.stat()
        needed = stat.S_IXUSR if status.st_uid == account.user else stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def socket_directory_of(cluster: Path) -> Path:
    # Server and client both take a comma for the end of one directory and the beginning of another.
    if len(os.fsencode(cluster)) <= LONGEST_SOCKET_DIRECTORY and "," not in str(cluster):
        return cluster
    return SHORT_PLACE / f"catbird-{os.geteuid()}-{short_hash(cluster)}"


def short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:10]


def make_directories(layout: Layout) -> None:
    """Make what is missing, and refuse directories that somebody else put there before us."""
    if layout.is_elsewhere:
        make_private_directory(layout.cluster.parent, owner=os.geteuid(), mode=0o755)
    for directory in {layout.cluster, layout.socket_directory}:
        make_private_directory(directory, owner=layout.owner, mode=0o700, account=layout.account)


def make_private_directory(directory: Path, *, owner: int, mode: int, account: Account | None = None) -> None:
    try:
        directory.mkdir(mode=mode)
    except FileExistsError:
        pass
    except OSError as error:
        raise EmbeddedPostgresError(
            f"cannot make {directory} ({error.strerror}): free that path, or set DATABASE_URL"
        ) from error
    else:
        directory.chmod(mode)
        if account:
            os.chown(directory, account.user, account.group)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EmbeddedPostgresError(
            f"{directory} is not a directory of ours alone: remove it, run this as its owner, or set DATABASE_URL"
        )
