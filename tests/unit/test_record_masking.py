"""Masking: off by default; when it is on, a secret is never in the log."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sample_events import BLOCKS, PAYLOADS, RUN_ID, location_of, rule_violations, started, tool_call

from shopfloor.errors import InvalidEvent, InvalidSecret
from shopfloor.limits import SECRET_MIN_CHARS
from shopfloor.log import (
    MASK,
    CommandBlock,
    MaskHook,
    Masking,
    Payload,
    RunStarted,
    StepCompleted,
    TextBlock,
    UserMessage,
    decode,
)
from shopfloor.record import Recorder, read

SECRET = "hunter2-correct-horse"

KEYS = {
    "Anthropic": "sk-ant-api03-" + "Ab1_" * 8,
    "OpenAI": "sk-proj-" + "Ab1-" * 8,
    "OpenAI, older": "sk-" + "Ab1x" * 12,
    "GitHub": "ghp_" + "Ab1x" * 9,
    "GitHub, fine-grained": "github_pat_" + "Ab1_" * 10,
    "GitLab": "glpat-" + "Ab1x" * 5,
    "AWS": "AKIA" + "ABCD1234" * 2,
    "Google": "AIza" + "Ab1_x" * 7,
    "Slack": "xoxb-" + "1234567890-abc",
    "Stripe": "sk_live_" + "Ab1x" * 6,
    "JSON web token": "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----",
}


def recorded(path: Path, mask: MaskHook | None, *payloads: Payload) -> list[Any]:
    """Return the payloads that the log has."""
    with Recorder(path, RUN_ID, mask=mask) as recorder:
        recorder.append(started())
        for payload in payloads:
            recorder.append(payload, **location_of(payload))
    assert rule_violations(path) == []
    return [json.loads(entry.raw)["payload"] for entry in read(path, after=1)]


def prompt(text: str) -> UserMessage:
    return UserMessage(system_prompt=f"system {text}", blocks=[TextBlock(fidelity="router", text=f"user {text}")])


@pytest.mark.req("TR-54")
def test_by_default_nothing_is_masked(log_path: Path) -> None:
    secrets = " ".join([SECRET, *KEYS.values()])
    message, call = recorded(log_path, None, prompt(secrets), tool_call({"token": secrets}))
    assert message["system_prompt"] == f"system {secrets}"
    assert message["blocks"][0]["text"] == f"user {secrets}"
    assert call["input"] == {"token": secrets}


@pytest.mark.req("TR-55")
def test_a_registered_value_is_masked_in_every_position(log_path: Path) -> None:
    deep = {"a": [{"b": f"x{SECRET}y{SECRET}"}], SECRET: 1, "n": 5, "none": None}
    step = StepCompleted(name="build", kind="command", try_=1, error=f"bad {SECRET}", result=deep)
    payloads = [prompt(SECRET), tool_call(deep), PAYLOADS["step.started"], step]
    message, call, _, ended = recorded(log_path, Masking([SECRET]), *payloads)
    assert SECRET.encode() not in log_path.read_bytes()
    assert message["system_prompt"] == f"system {MASK}"
    assert message["blocks"] == [{"type": "text", "fidelity": "router", "text": f"user {MASK}"}]
    masked = {"a": [{"b": f"x{MASK}y{MASK}"}], MASK: 1, "n": 5, "none": None}
    assert call["input"] == ended["result"] == masked
    assert ended["error"] == f"bad {MASK}"


@pytest.mark.req("TR-55")
def test_a_secret_is_in_no_event_that_subscribers_get(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID, mask=Masking([SECRET])) as recorder:
        recorder.append(started())
        live = recorder.subscribe()
        entry = recorder.append(prompt(SECRET), path="a")
        assert live.drain() == [entry]
    assert SECRET.encode() not in entry.raw
    assert MASK.encode() in entry.raw


@pytest.mark.parametrize("key", ["type", "fidelity", "role", "kind", "status", "stream"])
def test_a_registered_value_is_masked_under_any_key_of_inputs_and_outputs(log_path: Path, key: str) -> None:
    run = RunStarted(name="x", kind="worker", attempt=2, host="h", input={key: SECRET})
    recorded(log_path, Masking([SECRET]), run, tool_call({key: SECRET, "deep": [{key: SECRET}]}))
    assert SECRET.encode() not in log_path.read_bytes()


@pytest.mark.parametrize(
    "value", [{1: SECRET}, (SECRET,), {"a": (1, (SECRET,))}], ids=["number key", "tuple", "tuples"]
)
def test_a_registered_value_is_masked_in_every_event(log_path: Path, value: Any) -> None:
    recorded(log_path, Masking([SECRET]), tool_call(value))
    assert SECRET.encode() not in log_path.read_bytes()
    assert MASK.encode() in log_path.read_bytes()


@pytest.mark.parametrize("word", ["assistant", "router", "command", "tool_use", "stdout", "agent_emitted", "thinking"])
def test_structural_fields_of_an_event_are_not_masked(log_path: Path, word: str) -> None:
    payloads = [PAYLOADS["message.assistant"], PAYLOADS["tool.call"], PAYLOADS["step.started"]]
    hidden = recorded(log_path, Masking([word]), *payloads)
    blocks = hidden[0]["blocks"]
    assert [(block["type"], block["fidelity"]) for block in blocks] == [
        (name, block.fidelity) for name, block in BLOCKS.items()
    ]
    assert [decode(entry.raw).problems for entry in read(log_path)] == [()] * 4


@pytest.mark.parametrize("word", ["blocks", "command", "system_prompt", "call_id", "output"])
def test_a_secret_that_is_also_the_name_of_a_field_leaves_the_field_its_name(log_path: Path, word: str) -> None:
    user_message = UserMessage(system_prompt=word, blocks=[CommandBlock(fidelity="router", command=f"echo {word}")])
    message, call = recorded(log_path, Masking([word]), user_message, tool_call({"a": word}))
    assert message == {
        "role": "user",
        "system_prompt": MASK,
        "blocks": [{"type": "command", "fidelity": "router", "command": f"echo {MASK}"}],
    }
    assert call["input"] == {"a": MASK}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_known_key_format_is_masked_on_request(log_path: Path, key: str) -> None:
    message, call = recorded(log_path, Masking(key_shapes=True), prompt(f"<{key}>"), tool_call({"env": [f"K={key};"]}))
    assert message["blocks"][0]["text"] == f"user <{MASK}>"
    assert call["input"] == {"env": [f"K={MASK};"]}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_known_key_format_is_not_masked_by_default(log_path: Path, key: str) -> None:
    (call,) = recorded(log_path, Masking([SECRET]), tool_call(key))
    assert call["input"] == key


@pytest.mark.parametrize(
    "text", ["task-force", "sk-short", "AKIA", "ghp_", "eyJ.eyJ.x", "risk-assessment", "-----BEGIN"]
)
def test_ordinary_words_are_no_keys(log_path: Path, text: str) -> None:
    (call,) = recorded(log_path, Masking(key_shapes=True), tool_call(text))
    assert call["input"] == text


def test_a_truncated_private_key_is_masked_to_its_end(log_path: Path) -> None:
    (call,) = recorded(log_path, Masking(key_shapes=True), tool_call("a -----BEGIN PRIVATE KEY-----\nMIIE\nabc"))
    assert call["input"] == f"a {MASK}"


def test_the_longer_of_two_secrets_with_the_same_start_is_masked_completely(log_path: Path) -> None:
    (call,) = recorded(log_path, Masking(["secret", "secret-longer"]), tool_call("secret-longer secret"))
    assert call["input"] == f"{MASK} {MASK}"


def test_a_secret_is_a_text_and_not_a_pattern(log_path: Path) -> None:
    (call,) = recorded(log_path, Masking(["a.b*c[d"]), tool_call("a.b*c[d axbbbc"))
    assert call["input"] == f"{MASK} axbbbc"


@pytest.mark.parametrize("short", ["", "a", "x" * (SECRET_MIN_CHARS - 1)])
def test_a_secret_that_is_too_short_is_rejected(short: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        Masking([SECRET, short])
    assert refused.value.hint
    assert Masking(["x" * SECRET_MIN_CHARS])({"a": "x" * SECRET_MIN_CHARS}) == {"a": MASK}


def test_a_hook_for_nothing_changes_nothing() -> None:
    payload = msgspec.to_builtins(PAYLOADS["message.user"])
    assert Masking()(payload) == payload


def test_events_without_a_secret_are_written_as_without_masking(log_path: Path, tmp_path: Path) -> None:
    payloads = [payload for name, payload in PAYLOADS.items() if name not in {"run.started", "run.completed"}]
    payloads.append(PAYLOADS["run.completed"])
    plain = recorded(log_path, None, *payloads)
    assert recorded(tmp_path / log_path.name, Masking([SECRET], key_shapes=True), *payloads) == plain


@pytest.mark.parametrize(
    ("text", "pending_secret_bytes"),
    [
        ("", 0),
        ("nothing here", 0),
        ("say h", 1),
        ("say hunter2-corr", 12),
        ("hunter2-hunt", 4),
        (f"say {SECRET}", 0),
        (f"{SECRET}{SECRET[:7]}", 7),
        (f"{SECRET[:-1]}x", 0),
    ],
)
def test_text_that_may_start_a_secret_is_held_back(text: str, pending_secret_bytes: int) -> None:
    assert Masking([SECRET]).pending_secret_bytes(text.encode()) == pending_secret_bytes


@pytest.mark.parametrize("hook", [Masking(KEYS.values()), Masking(key_shapes=True)], ids=["values", "shapes"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_secret_in_two_parts_is_masked_at_any_split(hook: Masking, key: str) -> None:
    whole = f"before {key} after"
    for split in range(len(whole)):
        first, rest = whole[:split], whole[split:]
        stable_chars = split - hook.pending_secret_bytes(first.encode())
        assert hook.text(whole[:stable_chars]) + hook.text(whole[stable_chars:]) == f"before {MASK} after", (
            first,
            rest,
        )


def test_a_custom_hook_can_change_events_before_they_are_written(log_path: Path) -> None:
    (call,) = recorded(log_path, lambda payload: payload | {"name": "gone"}, tool_call("here"))
    assert (call["name"], call["input"]) == ("gone", "here")


def test_a_hook_that_breaks_an_event_is_refused_and_uses_up_no_seq(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID, mask=lambda payload: payload if "host" in payload else {}) as recorder:
        recorder.append(started())
        with pytest.raises(InvalidEvent):
            recorder.append(tool_call("x"), path="a")
        assert recorder.seq == 1
    assert rule_violations(log_path) == []
