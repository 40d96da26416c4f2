"""An app whose tasks crash, hang and talk, each in a process of its own."""
