"""Task engines side by side, on one PostgreSQL, in one interleaved run.

command        the command line: which contenders, how many rounds; shows the progress
contenders     who takes part, with which settings and in which environment
environments   a virtual environment for each peer, made on demand
servers        the PostgreSQL all share, and a Redis for those who need one
measures       drain, enqueue, pick-up, idle
summary        medians, spreads, ratios; the table and the JSON
machine        what it all ran on
engines/       one adapter per engine: the same few commands for each, in that engine's own terms
"""
