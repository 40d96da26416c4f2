"""Workflow engines side by side, on one PostgreSQL, in one interleaved run.

contenders     who takes part, with which settings and in which environment
shapes         the flows that are run: linear, diamond, fan-out, maps
plan           what is measured of whom, and under which names
sizes          how much of everything
measures       how fast flows are, what they cost, and how long claims take meanwhile
statements     statements and their durations, as the server's log has them
tables, goals  what a run prints, and what we want to reach
command        `bench flows`
engines/       one adapter per engine: the same few commands for each, in that engine's own terms
"""
