"""Tools as plain functions: the JSON Schema comes from the type hints, the description from the docstring."""

import asyncio
import hashlib
import inspect
import json
import re
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

EFFECTS = ("pure", "idempotent", "once")
MAX_RESULT_BYTES = 256 * 1024
# Workers take a few reports of a call a second.
PROGRESS_EVERY_S = 0.25
MAX_TEXT = 500

Schema = dict[str, Any]
Report = Callable[[dict[str, Any]], None]


class ArgumentError(ValueError):
    """The model gave arguments that do not fit the type hints. Its text is the answer of the call."""


class CallCancelled(Exception):
    """The call was cancelled, or its time is over."""


class Call:
    """A running call. A parameter with this type gets it; the model does not see that parameter."""

    def __init__(self, id: str, deadline: float, report: Report) -> None:
        self.id = id
        """The same for every try of the call: use it as idempotency key towards other systems."""
        self._deadline = deadline
        self._report = report
        self._ended = threading.Event()
        self._next_progress = 0.0
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or its time is over: its result is not waited for any more."""
        return self._ended.is_set() or time.time() >= self._deadline

    def check(self) -> None:
        """Raises `CallCancelled` where the call is cancelled."""
        if self.cancelled:
            raise CallCancelled("the call was cancelled")

    def wait(self, seconds: float) -> None:
        """Sleeps. Raises `CallCancelled` as soon as the call is cancelled."""
        self._ended.wait(max(0.0, min(seconds, self._deadline - time.time())))
        self.check()

    def progress(self, fraction: float, detail: str = "") -> None:
        """Shows on the card how far the call is, from 0 to 1. Four a second arrive at most."""
        with self._lock:
            if time.monotonic() < self._next_progress:
                return
            self._next_progress = time.monotonic() + PROGRESS_EVERY_S
            self._report({"kind": "progress", "fraction": min(1.0, max(0.0, fraction)), "detail": detail[:MAX_TEXT]})

    def log(self, text: str) -> None:
        """Adds a line to the events of the session: log no secrets."""
        with self._lock:
            self._report({"kind": "log", "text": text[:MAX_TEXT]})

    def cancel(self) -> None:
        self._ended.set()


@dataclass(frozen=True)
class Tool:
    """What a model may call. Made by `tool`; calling it calls its function."""

    name: str
    description: str
    input_schema: Schema
    effect: str
    requires_approval: bool
    timeout_ms: int
    title: str | dict[str, str] | None
    function: Callable[..., Any]
    read: Callable[[Any, Call], dict[str, Any]]

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.function(*given, **named)

    def announcement(self) -> dict[str, Any]:
        spec = {"name": self.name, "description": self.description, "inputSchema": self.input_schema}
        relied_on = json.dumps([self.input_schema, self.effect, self.requires_approval])
        return {
            "digest": hashlib.sha256(relied_on.encode()).hexdigest(),
            "spec": spec,
            "effect": self.effect,
            "requiresApproval": self.requires_approval,
            "timeoutMs": self.timeout_ms,
            **({} if self.title is None else {"title": self.title}),
        }


declared: list[Tool] = []
"""In the order in which `tool` has made them."""


def tool(
    function: Callable[..., Any] | None = None,
    *,
    effect: Literal["pure", "idempotent", "once"] = "once",
    name: str | None = None,
    description: str | None = None,
    title: str | dict[str, str] | None = None,
    requires_approval: bool = False,
    timeout_s: float = 60,
) -> Any:
    """Declares a function as a tool.

    `effect` says whether a call may run twice: `pure`, `idempotent`, or `once` (must not be repeated). `title` is what
    people read instead of the name, a text or `{"zh": ..., "en": ...}`. After `timeout_s` the call is answered for the
    function; it is not stopped, but `Call.cancelled` is true then. Raises TypeError where a hint has no JSON Schema.
    """

    def declare(function: Callable[..., Any]) -> Tool:
        known = name or function.__name__
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", known):
            raise TypeError(f"{known!r} is no name of a tool: 1 to 64 letters, digits, '_' and '-'")
        if effect not in EFFECTS:
            raise TypeError(f"{known}: effect must be one of {', '.join(EFFECTS)}")
        text = description or inspect.getdoc(function)
        if not text:
            raise TypeError(f"{known} needs a docstring: the model reads it")
        schema, read = _form_of_parameters(known, function)
        made = Tool(known, text, schema, effect, requires_approval, round(timeout_s * 1000), title, function, read)
        declared.append(made)
        return made

    return declare if function is None else declare(function)


@dataclass
class ToolRun:
    """What became of a call in a test."""

    outcome: dict[str, Any]
    """`{"ok": True, "result": ...}` or `{"ok": False, "error": ...}`, as the model gets it."""
    reports: list[dict[str, Any]] = field(default_factory=list)
    """Its progress and log lines."""


def run_tool(tool: Tool, arguments: dict[str, Any], *, timeout_s: float = 60, cancelled: bool = False) -> ToolRun:
    """Runs a call as the runner does, for tests: arguments are checked and converted, the result has to be JSON."""
    reports: list[dict[str, Any]] = []
    call = Call("test", time.time() + timeout_s, reports.append)
    if cancelled:
        call.cancel()
    return ToolRun(outcome_of(tool, json.dumps(arguments), call), reports)


def outcome_of(tool: Tool, arguments: str, call: Call) -> dict[str, Any]:
    """Runs a call; whatever its function raises is its answer."""
    try:
        given = tool.read(json.loads(arguments), call)
        result = tool.function(**given)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        # Infinity and the like are no JSON, although Python writes them.
        if len(json.dumps(result, allow_nan=False)) > MAX_RESULT_BYTES:
            return failure(f"the result exceeds {MAX_RESULT_BYTES} bytes")
        return {"ok": True, "result": result}
    except (ArgumentError, CallCancelled) as error:
        return failure(str(error))
    except Exception as error:
        traceback.print_exc()
        return failure(f"{type(error).__name__}: {error}"[:8000])


def failure(error: str, unknown: bool = False) -> dict[str, Any]:
    return {"ok": False, "error": error, **({"unknown": True} if unknown else {})}


# A form is the schema of a hint, and the function that reads a JSON value by it: `read(value, where)`.
Form = tuple[Schema, Callable[[Any, str], Any]]


def _form_of_parameters(name: str, function: Callable[..., Any]) -> tuple[Schema, Callable[[Any, Call], dict[str, Any]]]:
    hints = get_type_hints(function, include_extras=True)
    calls, forms, required = [], {}, []
    for parameter in inspect.signature(function).parameters.values():
        where = f"{name}({parameter.name})"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where}: a tool takes its arguments by name")
        if parameter.name not in hints:
            raise TypeError(f"{where} needs a type hint")
        if hints[parameter.name] is Call:
            calls.append(parameter.name)
            continue
        forms[parameter.name] = _form_of(hints[parameter.name], where)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema, read = _form_of_fields(forms, required)
    return schema, lambda given, call: {**read(given, ""), **{name: call for name in calls}}


def _form_of_fields(forms: dict[str, Form], required: list[str]) -> Form:
    schema = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in forms.items()},
        "required": required,
        "additionalProperties": False,
    }

    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(where, "an object")
        inside = f"{where}." if where else ""
        for name in required:
            if name not in value:
                raise ArgumentError(f"{inside}{name} is missing")
        for name in value:
            if name not in forms:
                raise ArgumentError(f"{inside}{name} is not known; there are {', '.join(forms)}")
        return {name: forms[name][1](each, f"{inside}{name}") for name, each in value.items()}

    return schema, read


def _form_of(hint: Any, where: str) -> Form:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _noted(_form_of(inside[0], where), inside[1:], where)
    if origin in (Required, NotRequired):
        return _form_of(inside[0], where)
    if hint is Any:
        return {}, lambda value, _: value
    if hint in _plain:
        schema, words, fits, convert = _plain[hint]
        return schema, _reader(words, fits, convert)
    if origin is Literal:
        return {"enum": list(inside)}, _reader(f"one of {json.dumps(inside, ensure_ascii=False)}", _among(inside))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        values = [each.value for each in hint]
        return {"enum": values}, _reader(f"one of {json.dumps(values, ensure_ascii=False)}", _among(values), hint)
    if origin in (Union, UnionType):
        return _any_of([_form_of(each, where) for each in inside])
    if hint is list or origin is list:
        return _list_of(_form_of(inside[0] if inside else Any, where))
    if hint is dict or origin is dict:
        if inside and inside[0] is not str:
            raise TypeError(f"{where}: the keys of a JSON object are texts")
        return _map_of(_form_of(inside[1] if inside else Any, where))
    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        forms = {name: _form_of(each, f"{where}.{name}") for name, each in hints.items()}
        return _form_of_fields(forms, [name for name in hints if name in hint.__required_keys__])
    if inspect.isclass(hint) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        forms = {each.name: _form_of(hints[each.name], f"{where}.{each.name}") for each in fields(hint)}
        required = [
            each.name for each in fields(hint) if each.default is MISSING and each.default_factory is MISSING
        ]
        schema, read = _form_of_fields(forms, required)
        return schema, lambda value, at: hint(**read(value, at))
    raise TypeError(
        f"{where}: {hint!r} has no JSON Schema. There are str, int, float, bool, None, list, dict, Literal, Enum, "
        "unions, TypedDict, dataclasses, Any, and Annotated with a description or limits"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    """`3.0` is: a model may write it so."""
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_plain: dict[Any, tuple[Schema, str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    str: ({"type": "string"}, "a text", lambda value: isinstance(value, str), str),
    int: ({"type": "integer"}, "a whole number", _is_whole, int),
    float: ({"type": "number"}, "a number", _is_number, float),
    bool: ({"type": "boolean"}, "true or false", lambda value: isinstance(value, bool), bool),
    NoneType: ({"type": "null"}, "null", lambda value: value is None, lambda value: value),
}


def _among(values: Any) -> Callable[[Any], bool]:
    """Of the same type, too: `True` is no `1`."""
    return lambda value: any(value == each and type(value) is type(each) for each in values)


def _reader(words: str, fits: Callable[[Any], bool], convert: Callable[[Any], Any] = lambda value: value) -> Any:
    def read(value: Any, where: str) -> Any:
        if not fits(value):
            raise _wrong(where, words)
        return convert(value)

    return read


def _wrong(where: str, words: str) -> ArgumentError:
    return ArgumentError(f"{where or 'the arguments'} must be {words}")


def _any_of(forms: list[Form]) -> Form:
    def read(value: Any, where: str) -> Any:
        problems = []
        for _, read_one in forms:
            try:
                return read_one(value, where)
            except ArgumentError as error:
                problems.append(str(error))
        raise ArgumentError(", or ".join(problems))

    return {"anyOf": [schema for schema, _ in forms]}, read


def _list_of(form: Form) -> Form:
    schema, read_one = form

    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(where, "a list")
        return [read_one(each, f"{where}[{at}]") for at, each in enumerate(value)]

    return {"type": "array", "items": schema}, read


def _map_of(form: Form) -> Form:
    schema, read_one = form

    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(where, "an object")
        return {name: read_one(each, f"{where}.{name}") for name, each in value.items()}

    return {"type": "object", "additionalProperties": schema}, read


_limits: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, limit: re.search(limit, value) is not None,
}


def _noted(form: Form, notes: tuple[Any, ...], where: str) -> Form:
    """A text is the description of a value, a dict has limits of JSON Schema; other notes are for others."""
    schema, read_value = form
    limits: Schema = {}
    for note in notes:
        if isinstance(note, str):
            schema = {**schema, "description": note}
        elif isinstance(note, dict):
            unknown = [name for name in note if name not in _limits]
            if unknown:
                raise TypeError(f"{where}: {', '.join(unknown)} is no limit; there are {', '.join(_limits)}")
            limits.update(note)

    def read(value: Any, at: str) -> Any:
        got = read_value(value, at)
        for name, limit in limits.items():
            if not _limits[name](got, limit):
                raise ArgumentError(f"{at} breaks {name} {limit}")
        return got

    return {**schema, **limits}, read
