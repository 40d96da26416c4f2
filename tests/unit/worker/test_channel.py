"""The line between a worker and the process of a handler carries JSON, whole or not at all (R11)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from catbird_django.engine.tasks import Delivery, TaskClaim
from catbird_django.worker.channel import Channel, HungUp
from catbird_django.worker.isolation.messages import (
    claim_as_json,
    claim_from_json,
    outcome_as_json,
    outcome_from_json,
)
from catbird_django.worker.outcome import Canceled, Completed, Failed, Outcome, Released

CLAIM = TaskClaim(7, Delivery(7, "secret"), "default", 3, 5, '{"a": 1}', None, 2, 1, 0)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_arrive_whole_and_in_order(line: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = Channel(line[0]), Channel(line[1])
    messages = [{"n": 1}, {"text": "ü" * 500_000}, {"n": 2}]
    thread = threading.Thread(target=lambda: [sender.send(message) for message in messages])
    thread.start()

    received = [receiver.receive(timeout=5) for _ in messages]

    thread.join()
    assert received == messages


def test_half_a_message_is_none_yet(line: tuple[socket.socket, socket.socket]) -> None:
    receiver = Channel(line[1])
    line[0].sendall(b'\x00\x00\x00\x08{"a"')

    assert receiver.receive(timeout=0.01) is None

    line[0].sendall(b": 1}")
    assert receiver.receive(timeout=5) == {"a": 1}


def test_the_end_is_told_to_whoever_receives_and_whoever_sends(line: tuple[socket.socket, socket.socket]) -> None:
    channel = Channel(line[0])
    line[1].close()

    with pytest.raises(HungUp):
        channel.receive(timeout=5)
    with pytest.raises(HungUp):
        channel.send({})


def test_a_claim_travels_without_the_proof_that_it_is_held() -> None:
    message = claim_as_json(CLAIM)

    assert "secret" not in str(message)
    assert claim_from_json(message) == CLAIM._replace(delivery=Delivery(7, ""))


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(CLAIM, "null"),
        Failed(CLAIM, "{}", timedelta(seconds=1.5)),
        Failed(CLAIM, "{}"),
        Released(CLAIM),
        Released(CLAIM, timedelta(minutes=1)),
        Canceled(CLAIM, "why not"),
    ],
)
def test_an_outcome_arrives_as_it_was_sent(outcome: Outcome) -> None:
    assert outcome_from_json(CLAIM, outcome_as_json(outcome)) == outcome


def test_an_outcome_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no outcome 'lost'"):
        outcome_from_json(CLAIM, {"kind": "lost"})
