"""Recorded conversations and prompts: the texts that are sent, read from a workload file.

Owns two forms, ShareGPT's JSON array and one request per line of JSONL. Knows no tokenizer:
answers are kept as text, for the caller to count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.load.text_lines import (
    DECODER,
    json_problem,
    read_count,
    read_lines,
    read_object,
    shown,
    unreadable,
)

_ASKS = frozenset({"human", "user"})
# The last three are other assistants, in the ShareGPT files that are passed around.
_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
_SYSTEM = "system"
_ROLES = ", ".join(sorted(_ASKS | _ANSWERS | {_SYSTEM}))
_OUTPUT_KEYS = ("output_tokens", "max_tokens")
_MEND = "correct or delete it."
# White space as JSON has it, which is less than Python's.
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What a user sends in one turn; exactly one of ``text`` and ``messages`` is given.

    Attributes:
        text: A prompt or a user's message.
        messages: ``role`` and ``content`` of several messages that are sent together, in order:
            a system prompt and the user's, or a whole chat that is to be continued. What earlier
            turns of the conversation sent and got is not in them.
        n_output_tok: Answer tokens to ask for; ``None`` where the file does not say.
        answer: The recorded answer, not empty; ``None`` where the file has none.
    """

    text: str | None
    messages: tuple[Mapping[str, str], ...] | None
    n_output_tok: int | None
    answer: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One user's turns, at least one."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversations:
    """A file's conversations.

    Attributes:
        items: At least one, in the file's order.
        n_dropped: Items left out because nobody asks and gets an answer in them.
    """

    items: tuple[Conversation, ...]
    n_dropped: int


def read_sharegpt(path: Path) -> Conversations:
    """Read a JSON array of ``{"conversations": [{"from": ..., "value": ...}, ...]}``.

    A message of a human that an answer follows is a turn; both must have more than white space.
    What the human said without an answer, and an answer without a question, as where a long
    conversation was split, is left out. A system prompt goes with the turn that follows it.

    Args:
        path: The file, UTF-8. It is held in memory as text, its items one at a time.

    Returns:
        Its conversations; their turns have ``answer``, and no ``n_output_tok``.

    Raises:
        UsageError: The file cannot be read, is no JSON array of such items, or holds no turn;
            the message names file and item, or file and line where the JSON itself is broken.
    """
    n_items = 0
    items: list[Conversation] = []
    for n_items, item in enumerate(_array_items(path), start=1):
        turns = tuple(_answered_turns(f"{path}: item {n_items}", item))
        if turns:
            items.append(Conversation(turns=turns))
    if not items:
        raise UsageError(
            f"{path}: none of its {n_items} items has a human's message and an answer after it: "
            "give a file with at least one."
        )
    return Conversations(items=tuple(items), n_dropped=n_items - len(items))


def read_jsonl(path: Path) -> Conversations:
    """Read one request per line: an object with ``prompt`` or ``messages``.

    ``prompt`` is a string, ``messages`` a list of objects with the strings ``role`` and
    ``content``; ``output_tokens`` or ``max_tokens`` may say how long the answer is. Other keys
    are passed over, and ``null`` is as good as no key.

    Args:
        path: The file, UTF-8.

    Returns:
        A conversation of one turn for every line; none is dropped.

    Raises:
        UsageError: The file cannot be read, is empty, or has a line that is no such object; the
            message names file and line.
    """
    items = tuple(
        Conversation(turns=(_request_turn(where, read_object(where, line)),))
        for where, line in read_lines(path)
    )
    if not items:
        raise UsageError(
            f"{path}: the file is empty: give one JSON object with prompt or messages per line."
        )
    return Conversations(items=items, n_dropped=0)


def _array_items(path: Path) -> Iterator[object]:
    text = _read_text(path)
    at = _skip_space(text, 0)
    if text[at : at + 1] != "[":
        raise UsageError(
            f"{path}:{_line_at(text, at)}: {shown(text[at:])} is no JSON array: give a list of "
            '{"conversations": [...]}, or name a file with one object per line as JSONL.'
        )
    at = _skip_space(text, at + 1)
    n_item = 0
    is_end = text[at : at + 1] == "]"
    while not is_end:
        n_item += 1
        try:
            item, at = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}:{getattr(error, 'lineno', _line_at(text, at))}: item {n_item} is "
                f"unreadable, {json_problem(error)}: {_MEND}"
            ) from error
        yield item
        at = _skip_space(text, at)
        is_end = text[at : at + 1] == "]"
        if not is_end and text[at : at + 1] != ",":
            raise UsageError(
                f"{path}:{_line_at(text, at)}: {shown(text[at:])} follows item {n_item} where "
                "',' or ']' is due: mend the array, or fetch the file again if it was cut off."
            )
        at = _skip_space(text, at + 1) if not is_end else at
    rest = _skip_space(text, at + 1)
    if rest < len(text):
        raise UsageError(
            f"{path}:{_line_at(text, rest)}: {shown(text[rest:])} follows the end of the JSON "
            f"array: {_MEND}"
        )


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec counts from behind a byte order mark, which holds no line end.
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: byte {error.object[error.start]:#04x} is no UTF-8: save the file as "
            "UTF-8 text."
        ) from error


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _answered_turns(where: str, item: object) -> Iterator[Turn]:
    messages = item.get("conversations") if isinstance(item, dict) else None
    if not isinstance(messages, list):
        raise UsageError(f"{where} is {_described(item)}, without a list 'conversations': {_MEND}")
    system = ask = ""
    for index, message in enumerate(messages):
        role, text = _message(f"{where}: conversations[{index}]", message, ("from", "value"))
        if role not in _ASKS | _ANSWERS | {_SYSTEM}:
            raise UsageError(
                f"{where}: conversations[{index}].from is {shown(role)}, none of {_ROLES}: {_MEND}"
            )
        if role == _SYSTEM:
            system = text
        elif role in _ASKS:
            ask = text
        else:
            if ask.strip() and text.strip():
                yield _recorded_turn(system, ask, text)
                system = ""
            ask = ""


def _recorded_turn(system: str, ask: str, answer: str) -> Turn:
    if not system.strip():
        return Turn(text=ask, messages=None, n_output_tok=None, answer=answer)
    messages = ({"role": "system", "content": system}, {"role": "user", "content": ask})
    return Turn(text=None, messages=messages, n_output_tok=None, answer=answer)


def _request_turn(where: str, row: dict[str, object]) -> Turn:
    prompt, messages = row.get("prompt"), row.get("messages")
    if (prompt is None) == (messages is None):
        have = "neither" if prompt is None else "both"
        raise UsageError(
            f"{where}: the object has {have} of prompt and messages: give exactly one of them."
        )
    n_output_tok = _output_tok(where, row)
    if prompt is not None:
        text = _text(where, "prompt", prompt)
        if not text:
            raise UsageError(f"{where}: prompt is '', without a token to send: {_MEND}")
        return Turn(text=text, messages=None, n_output_tok=n_output_tok)
    if not isinstance(messages, list) or not messages:
        raise UsageError(
            f"{where}: messages is {shown(messages)}, no list of at least one message: {_MEND}"
        )
    chat = tuple(_chat_message(f"{where}: messages[{i}]", m) for i, m in enumerate(messages))
    return Turn(text=None, messages=chat, n_output_tok=n_output_tok)


def _output_tok(where: str, row: dict[str, object]) -> int | None:
    given = [key for key in _OUTPUT_KEYS if row.get(key) is not None]
    if not given:
        return None
    counts = {read_count(where, key, row[key], minimum=1) for key in given}
    if len(counts) > 1:
        raise UsageError(
            f"{where}: output_tokens ({shown(row[given[0]])}) and max_tokens "
            f"({shown(row[given[1]])}) differ: give one of them."
        )
    return counts.pop()


def _chat_message(where: str, message: object) -> Mapping[str, str]:
    surplus = sorted(set(message) - {"role", "content"}) if isinstance(message, dict) else []
    if surplus:
        # Sent without them, the chat would be another one.
        raise UsageError(f"{where} has {shown(surplus[0])}: give it only role and content.")
    role, content = _message(where, message, ("role", "content"))
    if not role:
        raise UsageError(f"{where}: role is '': give it one, as user, assistant or system.")
    return {"role": role, "content": content}


def _message(where: str, message: object, keys: tuple[str, str]) -> tuple[str, str]:
    """The strings that a message has under two keys."""
    if not isinstance(message, dict) or not all(key in message for key in keys):
        raise UsageError(
            f"{where} is {_described(message)}, without {keys[0]} and {keys[1]}: {_MEND}"
        )
    return _text(where, keys[0], message[keys[0]]), _text(where, keys[1], message[keys[1]])


def _text(where: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: {name} is {shown(value)}, no string: {_MEND}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # JSON can write half of a surrogate pair; no tokenizer takes one.
        half = value[error.start]
        raise UsageError(
            f"{where}: {name} has {half!r} at character {error.start + 1}, half of a surrogate "
            f"pair: {_MEND}"
        ) from error
    return value


def _described(value: object) -> str:
    """A value, with its keys if it is an object."""
    if not isinstance(value, dict):
        return shown(value)
    return f"an object of {shown(', '.join(value))}" if value else "an empty object"
