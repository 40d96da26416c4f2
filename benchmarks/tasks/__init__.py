"""Task engines side by side, on one PostgreSQL, in one interleaved run.

command        the command line: which contenders, how many rounds; shows the progress
contenders     who takes part, with which settings and in which environment
environments   a virtual environment for each peer, made on demand
servers        the PostgreSQL all share, and a Redis for those who need one
plan           what is measured of whom, and under which names
sizes          how much of everything
bench          one contender, ready to be measured: databases, adapter calls, workers
measures       drain, enqueue, documents, pick-up, idle
finished       a database with millions of finished jobs
steady         full load for a long time: the soak, and beside an old transaction
producers      many producers at once
summary        medians, spreads, ratios; the tables and the JSON
goals          what we want to reach, and whether a run does
profile        where a worker's CPU time goes
machine        what it all ran on
engines/       one adapter per engine: the same few commands for each, in that engine's own terms
"""
