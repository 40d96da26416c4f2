"""Task engines side by side, on one PostgreSQL, in one interleaved run.

contenders     who takes part, with which settings and in which environment
plan           what is measured of whom, and under which names
sizes          how much of everything
measures       drain, enqueue, documents, pick-up, idle
finished       a database with millions of finished jobs
steady         full load for a long time: the soak, and beside an old transaction
producers      many producers at once
tables, goals  what a run prints, and what we want to reach
command        `bench tasks`
profile        where a worker's CPU time goes
engines/       one adapter per engine: the same few commands for each, in that engine's own terms
"""
