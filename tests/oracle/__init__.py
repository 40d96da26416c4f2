"""Random flows: made from a seed, run by real workers, and compared with a plain interpreter of what they mean.

shapes       a random flow, as data: steps, maps, reduces
interpreter  what must come of it, in plain Python
flows        the same as real flows, for workers to import
settings     the project that workers run in
"""
