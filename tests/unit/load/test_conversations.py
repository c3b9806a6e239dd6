"""Files of conversations and prompts: what becomes a turn, and how wrong files are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.load.conversations import (
    Conversation,
    Conversations,
    Turn,
    read_jsonl,
    read_sharegpt,
)

PAIR = '{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}'
# A file of its own for each example: tmp_path is one for all.
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sharegpt(folder: Path, content: str | bytes) -> Conversations:
    path = folder / "s.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_sharegpt(path)


def jsonl(folder: Path, content: str | bytes) -> Conversations:
    path = folder / "p.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_jsonl(path)


def item(*messages: tuple[object, object]) -> dict[str, object]:
    said = [{"from": role, "value": text} for role, text in messages]
    return {"id": "x_0", "conversations": said}


def asked(text: str, answer: str) -> Turn:
    return Turn(text=text, messages=None, n_output_tok=None, answer=answer)


def test_each_human_message_that_is_answered_is_a_turn(tmp_path: Path) -> None:
    items = [
        item(("human", "q1"), ("gpt", "a1"), ("human", "q2"), ("gpt", "a2")),
        item(("user", "q3"), ("assistant", "a3")),
    ]
    assert sharegpt(tmp_path, json.dumps(items)) == Conversations(
        items=(
            Conversation(turns=(asked("q1", "a1"), asked("q2", "a2"))),
            Conversation(turns=(asked("q3", "a3"),)),
        ),
        n_dropped=0,
    )


def test_what_is_not_asked_and_answered_is_left_out(tmp_path: Path) -> None:
    items = [
        # A conversation that was split: it begins with an answer and ends with a question.
        item(("gpt", "a0"), ("human", "q1"), ("chatgpt", "a1"), ("human", "q2")),
        # The last of two questions is the one that was answered.
        item(("human", "q3"), ("human", "q4"), ("bing", "a4"), ("bard", "a5")),
        item(("human", " "), ("gpt", "a"), ("human", "q"), ("gpt", "\n"), ("gpt", "late")),
        item(("gpt", "a"), ("human", "q")),
        item(),
    ]
    found = sharegpt(tmp_path, json.dumps(items))
    assert [conversation.turns for conversation in found.items] == [
        (asked("q1", "a1"),),
        (asked("q4", "a4"),),
    ]
    assert found.n_dropped == 3


def test_a_system_prompt_is_sent_with_the_turn_that_follows_it(tmp_path: Path) -> None:
    said = item(
        ("system", "be short"), ("human", "q1"), ("gpt", "a1"), ("human", "q2"), ("gpt", "a2")
    )
    (conversation,) = sharegpt(tmp_path, json.dumps([said])).items
    first = Turn(
        text=None,
        messages=(
            {"role": "system", "content": "be short"},
            {"role": "user", "content": "q1"},
        ),
        n_output_tok=None,
        answer="a1",
    )
    assert conversation.turns == (first, asked("q2", "a2"))


def test_an_array_may_be_indented_and_have_a_byte_order_mark(tmp_path: Path) -> None:
    items = [item(("human", "ü €"), ("gpt", "😀"))] * 3
    text = json.dumps(items, indent=2, ensure_ascii=False).replace("\n", "\r\n")
    found = sharegpt(tmp_path, f"\ufeff \n{text}\n")
    assert [conversation.turns for conversation in found.items] == [(asked("ü €", "😀"),)] * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "s.json:1: '' is no JSON array: give a list of"),
        ("\n" + PAIR, 's.json:2: \'{"conversations": [{'),
        ("[]", "s.json: none of its 0 items has a human's message and an answer after it: give"),
        ('[{"conversations": []}]', "s.json: none of its 1 items has a human's message"),
        ("[", "s.json:1: item 1 is unreadable, no valid JSON (Expecting value, column 2)"),
        (f"[{PAIR},\n\n  oops]", "s.json:3: item 2 is unreadable, no valid JSON (Expecting value"),
        (f"[{PAIR},\n{PAIR[:40]}", "s.json:2: item 2 is unreadable, no valid JSON ("),
        (f"[{PAIR}\n", "s.json:2: '' follows item 1 where ',' or ']' is due: mend"),
        (f"[{PAIR} 7]", "s.json:1: '7]' follows item 1 where ',' or ']' is due"),
        (f"[{PAIR},]", "s.json:1: item 2 is unreadable, no valid JSON"),
        (f"[{PAIR}]\n[]", "s.json:2: '[]' follows the end of the JSON array: correct or delete"),
        (f"[{PAIR}, 7]", "s.json: item 2 is 7, without a list 'conversations': correct or"),
        (f"[{PAIR}, {{}}]", "s.json: item 2 is an empty object, without a list 'conversations'"),
        ('[{"id": 1, "items": 2}]', "s.json: item 1 is an object of 'id, items', without a list"),
        ('[{"conversations": {}}]', "s.json: item 1 is an object of 'conversations', without a l"),
        ('[{"conversations": ["hi"]}]', "s.json: item 1: conversations[0] is 'hi', without from"),
        (
            '[{"conversations": [{"from": "gpt"}]}]',
            "s.json: item 1: conversations[0] is an object of 'from', without from and value",
        ),
        (
            json.dumps([item(("human", "q"), ("gpt", None))]),
            "s.json: item 1: conversations[1]: value is null, no string: correct or delete it.",
        ),
        (
            json.dumps([item((["human"], "q"))]),
            "s.json: item 1: conversations[0]: from is a list of 1, no string",
        ),
        (
            json.dumps([item(("human", "q"), ("tool", "4"))]),
            "s.json: item 1: conversations[1].from is 'tool', none of assistant, bard, bing, cha",
        ),
        (
            json.dumps([item(("human", "ab\ud800"))]),
            "s.json: item 1: conversations[0]: value has '\\ud800' at character 3, half of a sur",
        ),
        (f"[{PAIR}, NaN]", "s.json:1: item 2 is unreadable, NaN, Infinity or a number with"),
        (f"[\n{'9' * 5000}]", "s.json:2: item 1 is unreadable, NaN, Infinity or a number with"),
        ("[\n" * 100_000, "s.json:2: item 1 is unreadable, too many nested lists or objects"),
        (b"[\n1,\n\xff]", "s.json:3: byte 0xff is no UTF-8: save the file as UTF-8 text."),
        (b"\xef\xbb\xbf[\n\xff]", "s.json:2: byte 0xff is no UTF-8"),
        (b"\x00\x01", "s.json:1: '\\x00\\x01' is no JSON array"),
    ],
)
def test_a_wrong_array_is_refused_with_place_value_and_remedy(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        sharegpt(tmp_path, content)
    assert len(str(error.value)) < 500
    assert str(error.value).startswith(str(tmp_path))


def test_a_line_is_a_conversation_of_one_turn(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": ""},
    ]
    lines = [
        {"prompt": "p\u2028q"},
        {"prompt": "p", "output_tokens": 7, "messages": None, "id": 4},
        {"messages": chat, "max_tokens": 3, "output_tokens": None},
        {"messages": chat[:2], "max_tokens": 3, "output_tokens": 3},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    found = jsonl(tmp_path, "\ufeff" + text.replace("\n", "\r\n\n"))
    assert found.n_dropped == 0
    assert [conversation.turns for conversation in found.items] == [
        (Turn(text="p\u2028q", messages=None, n_output_tok=None),),
        (Turn(text="p", messages=None, n_output_tok=7),),
        (Turn(text=None, messages=tuple(chat), n_output_tok=3),),
        (Turn(text=None, messages=tuple(chat[:2]), n_output_tok=3),),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "p.jsonl: the file is empty: give one JSON object with prompt or messages per line."),
        ('{"prompt": "a"}\n\n{"prompt": ', "p.jsonl:3: no valid JSON (Expecting value, column 11"),
        ("[]", "p.jsonl:1: a list of 0 is no JSON object: correct or delete the line."),
        (
            '{"text": "a"}',
            "p.jsonl:1: the object has neither of prompt and messages: give exactly",
        ),
        ('{"prompt": "a", "messages": []}', "p.jsonl:1: the object has both of prompt and mess"),
        ('{"prompt": ""}', "p.jsonl:1: prompt is '', without a token to send: correct or"),
        ('{"prompt": ["a"]}', "p.jsonl:1: prompt is a list of 1, no string"),
        ('{"prompt": "\\udc00"}', "p.jsonl:1: prompt has '\\udc00' at character 1, half of a"),
        ('{"messages": []}', "p.jsonl:1: messages is a list of 0, no list of at least one"),
        ('{"messages": "hi"}', "p.jsonl:1: messages is 'hi', no list of at least one message"),
        ('{"messages": ["hi"]}', "p.jsonl:1: messages[0] is 'hi', without role and content"),
        (
            '{"messages": [{"role": "user"}]}',
            "p.jsonl:1: messages[0] is an object of 'role', without role and content",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
            "p.jsonl:1: messages[0]: content is a list of 1, no string",
        ),
        (
            '{"messages": [{"role": "", "content": "a"}]}',
            "p.jsonl:1: messages[0]: role is '': give it one",
        ),
        (
            '{"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]}',
            "p.jsonl:1: messages[0] has 'tool_calls': give it only role and content.",
        ),
        ('{"prompt": "a", "output_tokens": 0}', "p.jsonl:1: output_tokens is 0, not from 1 to"),
        ('{"prompt": "a", "max_tokens": true}', "p.jsonl:1: max_tokens is true, no whole number"),
        ('{"prompt": "a", "max_tokens": 1e9}', "p.jsonl:1: max_tokens is 1000000000.0, no whole"),
        (
            '{"prompt": "a", "output_tokens": 4, "max_tokens": 5}',
            "p.jsonl:1: output_tokens (4) and max_tokens (5) differ: give one of them.",
        ),
        ('{"prompt": "a", "x": -Infinity}', "p.jsonl:1: NaN, Infinity or a number with thousand"),
        (b'{"prompt": "a"}\n\x80', "p.jsonl:2: byte 0x80 is no UTF-8"),
    ],
)
def test_a_wrong_line_is_refused_with_place_value_and_remedy(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        jsonl(tmp_path, content)


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"p\.jsonl:1: messages is 'x{60}'\.\.\., no list"):
        jsonl(tmp_path, json.dumps({"messages": "x" * 1_000_000}))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (read_sharegpt, read_jsonl):
        with pytest.raises(UsageError, match=r"none: the file cannot be read .*No such file"):
            read(tmp_path / "none")
        with pytest.raises(UsageError, match="cannot be read"):
            read(tmp_path / "a\0b")


def check(folder: Path, content: bytes) -> None:
    """Reads ``content`` in both forms: turns that keep every promise, or a ``UsageError``."""
    for read in (sharegpt, jsonl):
        try:
            found = read(folder, content)
        except UsageError:
            continue
        assert found.items
        for turn in (turn for conversation in found.items for turn in conversation.turns):
            assert (turn.text is None) != (turn.messages is None)
            assert turn.text != ""
            assert turn.answer != ""
            assert turn.n_output_tok is None or turn.n_output_tok > 0


@fuzz
@given(st.sampled_from(["", "[", f"[{PAIR},", '{"prompt": "a', "{"]), st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_usage_error(
    tmp_path: Path, start: str, body: bytes
) -> None:
    check(tmp_path, start.encode() + body)


roles = st.sampled_from(["human", "gpt", "user", "assistant", "system"])
texts = st.text(st.characters(), max_size=4) | st.just("\ud83d")
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
keys = st.sampled_from(["from", "value", "role", "content", "conversations", "prompt"]) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
said = st.fixed_dictionaries({"from": roles | values, "value": texts | values})
chat = st.fixed_dictionaries({"role": roles | values, "content": texts | values})
items = st.fixed_dictionaries({"conversations": st.lists(said, max_size=6) | values})
requests = st.fixed_dictionaries(
    {},
    optional={
        "prompt": texts | values,
        "messages": st.lists(chat, max_size=3) | values,
        "output_tokens": st.integers(-1, 5) | values,
        "max_tokens": st.integers(-1, 5) | values,
    },
)


@fuzz
@given(st.lists(items | values, max_size=4))
def test_no_array_raises_anything_but_a_usage_error(tmp_path: Path, content: list[object]) -> None:
    check(tmp_path, json.dumps(content).encode())


@fuzz
@given(st.lists(requests | values, max_size=3))
def test_no_lines_raise_anything_but_a_usage_error(tmp_path: Path, lines: list[object]) -> None:
    check(tmp_path, "\n".join(json.dumps(line) for line in lines).encode())
