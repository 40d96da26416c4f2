"""An embedded PostgreSQL: one per directory, started by its first user and gone after its last.

    launcher   what a user of the server calls: join, start it if need be, learn its address
    watcher    the process that starts the server, waits until nobody uses it, and stops it
    server     one cluster: create it, start it, stop it, clear up after a dead one
    layout     which directory is where, and under which account the server runs
    binaries   where PostgreSQL's programs are
    locks      the three file locks that all of the above agree through
    __main__   a user of the server on the command line
    backend    a Django database engine that starts the server on the first real connection

Nothing here but `backend` needs Django, or anything else outside the standard library. Linux and macOS only.
"""
