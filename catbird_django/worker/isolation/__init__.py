"""Handlers in processes of their own, which may crash or be killed without harm to the worker (T8, W7).

`processes` is the worker's side, `child` the other; they talk JSON, over a channel, in the words of `messages`.
"""
