"""Fault tests: real workers on a private PostgreSQL, one scenario per fault, and what must be true afterwards.

python3 bootstrap.py chaos --list
python3 bootstrap.py chaos --rounds 20
python3 bootstrap.py chaos --only kill,restart

scenarios/   one small function per fault
rounds       what a scenario is given: workers to start, runs to queue, and the checks at the end
checks       what must be true when a round is over
cluster      the private PostgreSQL
sessions     what can be done to the server's sessions and settings
processes    real `manage.py catbird_worker` processes
ledger       what handlers really did, written where no rollback of ours reaches it
tasks        the handlers
flows        the flows, and the handlers of their steps
campaign     rounds of scenarios, counted and summed up
"""
