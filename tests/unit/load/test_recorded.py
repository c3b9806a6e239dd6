"""Recorded traffic becomes sessions: lengths, moments, sharing, and recordings that are short."""

import json
from collections import Counter

import pytest
from tokenizers import Tokenizer

from tuner.config.workload import ConversationsWorkload, TraceWorkload
from tuner.errors import UsageError
from tuner.load.conversations import Conversation, Conversations, Turn
from tuner.load.prompts import PromptWriter
from tuner.load.recorded import ConversationSource, TraceSource
from tuner.load.traces import Trace, TraceRow


def trace_source(tokenizer: Tokenizer, *rows: TraceRow) -> TraceSource:
    workload = TraceWorkload(kind="trace", file="t.csv")
    writer = PromptWriter(tokenizer, api="completions")
    return TraceSource(workload, Trace(rows=rows, n_dropped=0), writer)


def row(arrival_s: float | None, n_in: int, n_out: int, n_shared: int = 0) -> TraceRow:
    return TraceRow(
        arrival_s=arrival_s, n_input_tok=n_in, n_output_tok=n_out, n_shared_tok=n_shared
    )


def test_each_request_has_the_lengths_and_the_moment_of_its_row(tokenizer: Tokenizer) -> None:
    source = trace_source(tokenizer, row(1.0, 20, 5), row(2.5, 30, 7))
    sessions = source.build(2, level=1, model="m")
    assert [session.arrival_s for session in sessions] == [1.0, 2.5]
    requests = [session.turns[0] for session in sessions]
    assert [(r.n_prompt_tok, r.n_output_tok) for r in requests] == [(20, 5), (30, 7)]
    sent = [len(tokenizer.encode(json.loads(r.body)["prompt"]).ids) for r in requests]
    assert sent == [20, 30]


def test_a_trace_that_is_too_short_goes_on_with_new_prompts_after_a_mean_gap(
    tokenizer: Tokenizer,
) -> None:
    # Gaps of 1 and 3 s, 2 s on average: the second round begins 2 s after the last request.
    source = trace_source(tokenizer, row(0.0, 20, 5), row(1.0, 20, 5), row(4.0, 20, 5))
    sessions = source.build(7, level=1, model="m")
    assert [s.arrival_s for s in sessions] == pytest.approx([0, 1, 4, 6, 7, 10, 12])
    assert len({session.turns[0].body for session in sessions}) == 7


def test_rows_share_the_beginning_that_they_shared_when_recorded(tokenizer: Tokenizer) -> None:
    source = trace_source(tokenizer, row(0.0, 40, 5), row(0.0, 50, 5, 16), row(0.0, 40, 5, 32))
    first, second, third = (
        tokenizer.encode(json.loads(session.turns[0].body)["prompt"]).ids
        for session in source.build(3, level=1, model="m")
    )
    assert [len(first), len(second), len(third)] == [40, 50, 40]
    # The start token and 16 shared ones.
    assert second[:17] == third[:17]
    assert second[17] != third[17]
    assert first[1:9] != second[1:9]


def test_lengths_without_moments_have_none(tokenizer: Tokenizer) -> None:
    source = trace_source(tokenizer, row(None, 20, 5))
    assert not source.has_arrivals
    assert [s.arrival_s for s in source.build(3, level=1, model="m")] == [None] * 3


ASK = Turn(text=" abcd", messages=None, n_output_tok=None, answer=" efgh abcd")
MORE = Turn(text=" hgfe", messages=None, n_output_tok=None, answer=" aaaa")


def conversations(
    tokenizer: Tokenizer, *items: Conversation, api: str = "chat", **changes: object
) -> ConversationSource:
    values = {"kind": "sharegpt", "file": "f.json", "api": api} | changes
    workload = ConversationsWorkload.model_validate(values)
    found = Conversations(items=items, n_dropped=0)
    return ConversationSource(workload, found, PromptWriter(tokenizer, api=api))


def test_a_further_turn_follows_the_recorded_answer_and_lengths_are_its_tokens(
    tokenizer: Tokenizer,
) -> None:
    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    source = conversations(tokenizer, Conversation(turns=(ASK, MORE)), turns=2)
    (session,) = source.build(2, level=1, model="m")
    first, second = session.turns
    assert json.loads(first.body)["messages"] == [{"role": "user", "content": " abcd"}]
    assert json.loads(second.body)["messages"] == [
        {"role": "user", "content": " abcd"},
        {"role": "assistant", "content": " efgh abcd"},
        {"role": "user", "content": " hgfe"},
    ]
    assert first.n_output_tok == count(" efgh abcd")
    assert first.n_prompt_tok == count(" abcd")
    assert second.n_prompt_tok == count(" abcd") + count(" efgh abcd") + count(" hgfe")
    assert second.n_output_tok == count(" aaaa")


def test_only_the_first_turn_is_used_unless_more_are_asked_for(tokenizer: Tokenizer) -> None:
    source = conversations(tokenizer, Conversation(turns=(ASK, MORE)))
    assert [len(session.turns) for session in source.build(3, level=1, model="m")] == [1, 1, 1]


def test_every_conversation_comes_once_before_any_comes_again(tokenizer: Tokenizer) -> None:
    items = [
        Conversation(turns=(Turn(text=f" {k}", messages=None, n_output_tok=k),))
        for k in range(1, 11)
    ]
    source = conversations(tokenizer, *items, api="completions")
    built = [s.turns[0].n_output_tok for s in source.build(20, level=1, model="m")]
    assert sorted(built[:10]) == sorted(built[10:]) == list(range(1, 11))
    assert built[:10] != built[10:]
    other = [s.turns[0].n_output_tok for s in source.build(10, level=2, model="m")]
    assert other != built[:10]
    assert Counter(other) == Counter(built[:10])


def test_the_files_own_length_comes_before_the_studys(tokenizer: Tokenizer) -> None:
    given = Conversation(turns=(Turn(text=" abcd", messages=None, n_output_tok=9),))
    open_ended = Conversation(turns=(ASK,))
    source = conversations(tokenizer, given, open_ended, output_tokens=3)
    built = {s.turns[0].n_output_tok for s in source.build(2, level=1, model="m")}
    assert built == {9, 3}


def test_long_prompts_are_left_out_and_a_file_of_them_alone_is_refused(
    tokenizer: Tokenizer,
) -> None:
    long = Conversation(turns=(Turn(text=" abcd" * 50, messages=None, n_output_tok=2),))
    source = conversations(tokenizer, long, Conversation(turns=(ASK,)), max_input_tokens=20)
    assert len({s.turns[0].body for s in source.build(4, level=1, model="m")}) == 1
    with pytest.raises(UsageError, match=r"f\.json: every prompt is longer than .* \(20\)"):
        conversations(tokenizer, long, max_input_tokens=20)
