from dataclasses import dataclass

from catbird_django import task


@dataclass
class Page:
    title: str
    text: str


@dataclass
class Summary:
    title: str
    words: int


@task
def summarize(input: Page) -> Summary:
    """Count the words of a page."""
    return Summary(title=input.title, words=len(input.text.split()))
