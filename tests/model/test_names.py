"""Names of topics and groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.model.names import collision_key, group_id_error, is_internal, topic_name_error

LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize("name", ["a", "a.b", "A_b-9", "...", "-", "x" * 249, "__consumer_offsets"])
def test_legal_names_pass(name: str) -> None:
    assert topic_name_error(name) is None


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (None, "Topic name is invalid: the empty string is not allowed"),
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than ASCII alphanumerics"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
        ("é", "contains one or more characters other than ASCII alphanumerics"),
        ("１", "contains one or more characters other than ASCII alphanumerics"),
    ],
)
def test_fm04_bad_names_are_refused_in_kafkas_words(name: str | None, complaint: str) -> None:
    assert complaint in (topic_name_error(name) or "")


@pytest.mark.parametrize("name", ["a/b", "../x", "a\\b", "a\0b", "/", "c:x", "~"])
def test_fm85_path_characters_are_refused(name: str) -> None:
    assert topic_name_error(name) is not None


@given(st.text(max_size=300))
def test_fm85_only_legal_characters_pass(name: str) -> None:
    legal = 0 < len(name) <= 249 and set(name) <= LEGAL and name not in {".", ".."}
    assert (topic_name_error(name) is None) == legal


def test_a_huge_name_gives_a_short_message() -> None:
    assert len(topic_name_error("x" * 1_000_000) or "") < 400


def test_dot_and_underscore_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")


def test_internal_topics_and_groups() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")
    assert group_id_error("g") is None
    assert group_id_error(None) is not None
    assert group_id_error("") is not None
    assert group_id_error("", empty_allowed=True) is None
