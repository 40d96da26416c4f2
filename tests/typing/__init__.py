"""Read by mypy, in strict mode: what type checkers know of declarations."""
