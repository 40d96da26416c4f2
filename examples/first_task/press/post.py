"""A post office that remembers what it was given, so that the example has something to do."""

sent: list[tuple[str, str]] = []
unreachable: set[str] = set()


def send(recipient: str, text: str) -> None:
    if recipient in unreachable:
        raise ConnectionError(f"{recipient} cannot be reached")
    sent.append((recipient, text))


async def answers(address: str) -> bool:
    return address not in unreachable
