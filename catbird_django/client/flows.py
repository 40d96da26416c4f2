"""`Flow`, `@flow.step`, `@flow.map` and `@flow.reduce`: a graph of typed steps, declared by functions whose parameters
name what they need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from catbird_django.client.flow_handles import FlowHandle
from catbird_django.client.flow_runs import run_flow_definition
from catbird_django.client.options import FlowRunOptions, check_flow_options
from catbird_django.definitions.define_step import define_step
from catbird_django.definitions.flow import UNSTATED, FlowDefinition, define_flow
from catbird_django.definitions.flow_options import FlowOptions, MapOptions, ReduceOptions, StepOptions
from catbird_django.definitions.item_types import ItemError
from catbird_django.definitions.optional import Optional
from catbird_django.definitions.options import Named
from catbird_django.definitions.registry import registry
from catbird_django.definitions.signal import Signal
from catbird_django.definitions.step import StepDefinition
from catbird_django.definitions.step_kinds import StepKind
from catbird_django.errors import InvalidOption

__all__ = ["Flow", "ItemError", "Optional", "Signal", "Step"]

I = TypeVar("I")  # noqa: E741 - input and output, as in Flow[I, O]
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")
JsonForm = dict[str, Any] | list[Any]

PACKAGE = __name__.partition(".")[0]


class Step(Generic[P, R]):
    """A step of a flow, of whatever kind. Calling it calls the function."""

    def __init__(self, handler: Callable[P, R], definition: StepDefinition) -> None:
        self._handler = handler
        self.definition = definition

    @property
    def name(self) -> str:
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; an async one gives its coroutine."""
        return self._handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Step {self.name}>"


class StepDecorator:
    """Makes a step of a function: what `@flow.step(…)`, `@flow.map(…)` and `@flow.reduce(…)` return."""

    def __init__(self, flow: Flow[Any, Any], define: Callable[..., StepDefinition]) -> None:
        self._flow = flow
        self._define = define

    def __call__(self, handler: Callable[P, R], /) -> Step[P, R]:
        definition = self._define(handler=handler)
        self._flow.draft.add(definition)
        return Step(handler, definition)


class Flow(Generic[I, O]):
    """A graph of steps. A step's parameters name the steps whose outputs it takes, in whatever order they are declared.

    The whole is checked on first use, and by `manage.py check`.
    """

    @overload
    def __init__(self: Flow[Any, Any], name: str, **options: Unpack[FlowOptions]) -> None: ...
    @overload
    def __init__(self: Flow[I, Any], name: str, *, input: type[I], **options: Unpack[FlowOptions]) -> None: ...
    @overload
    def __init__(self: Flow[Any, Any], name: str, *, input: Any, **options: Unpack[FlowOptions]) -> None: ...

    def __init__(self, name: str, *, input: Any = UNSTATED, **options: Unpack[FlowOptions]) -> None:
        location, module = _declared_at()
        self.draft = define_flow(name=name, input_type=input, options=options, location=location, module=module)
        registry.add_flow(self.draft)

    @property
    def name(self) -> str:
        return self.draft.name

    @property
    def definition(self) -> FlowDefinition:
        """The whole flow; raise DefinitionError, with everything that is wrong, if it cannot work."""
        registry.refuse_flow_conflict(self.name)
        return self.draft.definition

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"

    @overload
    def step(self, handler: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(self, /, *, name: str | None = None, **options: Unpack[StepOptions]) -> StepDecorator: ...

    def step(self, handler: Any = None, /, *, name: str | None = None, **options: Unpack[StepOptions]) -> Any:
        """Make a step of a function: `@flow.step`, or with options, `@flow.step(max_retries=3)`."""
        if isinstance(handler, str):
            raise TypeError(f"@{self.name}.step decorates a function; name it with step(name={handler!r})")
        decorator = StepDecorator(self, partial(define_step, name=name, options=options))
        return decorator if handler is None else decorator(handler)

    def map(self, *, over: str | Named, name: str | None = None, **options: Unpack[MapOptions]) -> StepDecorator:
        """Make a step that calls a function for each item of a list: of a step's output, or of the flow's `"input"`.

        Each item is a piece of work of its own, with its own retries. The step's output is the list of what was
        returned for them, in their order.
        """
        return StepDecorator(self, partial(define_step, kind=StepKind.MAP, over=over, name=name, options=options))

    def reduce(
        self, *, over: str | Named, initial: Any, name: str | None = None, **options: Unpack[ReduceOptions]
    ) -> StepDecorator:
        """Make a step that calls a function with one item of a list after the other: of a step's output, or `"input"`.

        As `acc` it is given what it returned for the item before, and for the first of them a copy of `initial`. What
        it returned for the last item is the step's output.
        """
        what: dict[str, Any] = {"kind": StepKind.REDUCE, "over": over, "initial": initial}
        return StepDecorator(self, partial(define_step, **what, name=name, options=options))

    def run(self, input: I | JsonForm | None = None, **options: Unpack[FlowRunOptions]) -> FlowHandle[O]:
        """Start a run, in the current transaction of the database; return its handle.

        The input may be the typed value or its JSON form. Raise PayloadError, naming the field, if it does not fit, and
        DefinitionError, with everything that is wrong, if the flow cannot work.
        """
        return run_flow_definition(self.definition, [input], check_flow_options(options))[0]

    def run_many(self, inputs: Iterable[I | JsonForm], **options: Unpack[FlowRunOptions]) -> list[FlowHandle[O]]:
        """Start one run per input, in one round trip per few thousand; return their handles, in order.

        All of them are started, or none.
        """
        checked = check_flow_options(options)
        if checked.has_key:
            raise InvalidOption("a key names one run: use run() for each input that has one")
        return run_flow_definition(self.definition, inputs, checked)

    async def arun(self, input: I | JsonForm | None = None, **options: Unpack[FlowRunOptions]) -> FlowHandle[O]:
        """Async twin of `run`."""
        return await sync_to_async(self.run)(input, **options)

    async def arun_many(self, inputs: Iterable[I | JsonForm], **options: Unpack[FlowRunOptions]) -> list[FlowHandle[O]]:
        """Async twin of `run_many`."""
        return await sync_to_async(self.run_many)(inputs, **options)


def _declared_at() -> tuple[str, str]:
    """Where the flow is being declared, as file:line and module: the first frame outside of this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
    if frame is None:
        return "?", ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", frame.f_globals.get("__name__", "")
