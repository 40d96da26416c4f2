"""One module per kind of fault. A scenario makes its fault happen; the round does the rest."""
