"""Stands for a library, written in C, that draws pictures and sometimes crashes."""


def draw(text: str) -> str:
    """Draw a text; return the picture."""
    return f'<svg xmlns="http://www.w3.org/2000/svg"><text y="1em">{text}</text></svg>'
