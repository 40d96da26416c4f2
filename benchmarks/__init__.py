"""Measures what the project claims about speed, next to its peers and to what PostgreSQL itself can do.

tasks/, flows/  one benchmark each: who takes part, what is measured, what the tables and goals are
command         the command line that all benchmarks have
run             one run: prepares the contenders, measures them in turn, keeps the results
contenders      what an engine is, and an engine with one choice of settings
environments    a virtual environment for each peer, made on demand
servers         the PostgreSQL all share, and a Redis for those who need one
bench           one contender, ready to be measured: databases, adapter calls, workers
observed        what can be seen of processes and logs from outside
summary         medians, spreads, ratios; the tables and the JSON
goals, remarks  whether a run has met them, and what it has made smaller
machine         what it all ran on
engines/        what all adapters share
"""
