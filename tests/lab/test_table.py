"""What counts as named, and what the lab prints of it."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from chronik.audit.anomaly import Anomaly, Level, Verdict
from chronik.audit.diagnosis import CERTAIN, Cause, Diagnosis
from chronik.audit.workload import Plan
from chronik.lab import table
from chronik.lab.catalogue import BY_NAME
from chronik.lab.run import Outcome

PLAN = Plan("127.0.0.1:9092", "t", 1, Path("ledger"), messages=100)


def outcome(
    name: str,
    *,
    consumed: int = 100,
    anomalies: tuple[tuple[str, Level], ...] = (),
    causes: tuple[str, ...] = (),
    acked: int = 100,
    installed: bool = True,
) -> Outcome:
    """A run of which the audit said this."""
    sends = {"ok": acked} | ({"info": 100 - acked} if acked < 100 else {})
    verdict = Verdict(
        ok=not anomalies,
        anomalies=[Anomaly(one, level, 1) for one, level in anomalies],
        measures={"values_read": consumed, "sends": sends},
    )
    found = Diagnosis([Cause(cause, CERTAIN, "", []) for cause in causes])
    return Outcome(BY_NAME[name], PLAN, verdict, found, installed)


RACE = (("inconsistent-offsets", Level.FAIL), ("lost-write", Level.FAIL))


def test_a_defect_is_named_by_its_anomaly_and_its_cause() -> None:
    assert outcome("offset-race", anomalies=RACE, causes=("offset-assigned-twice",)).named


@pytest.mark.parametrize(
    "said",
    [
        outcome("offset-race"),
        outcome("offset-race", anomalies=RACE),
        outcome("offset-race", causes=("offset-assigned-twice",)),
        outcome("offset-race", anomalies=RACE, causes=("watermark-regression",)),
        # The first cause is the diagnosis; a right one behind it is too late.
        outcome("offset-race", anomalies=RACE, causes=("fsync-lost", "offset-assigned-twice")),
        outcome(
            "offset-race",
            anomalies=(("inconsistent-offsets", Level.ALLOWED),),
            causes=("offset-assigned-twice",),
        ),
    ],
)
def test_a_defect_is_not_named_by_less(said: Outcome) -> None:
    assert not said.named
    assert table.exit_code([said]) == 1


def test_the_run_without_a_defect_must_be_complete_and_without_a_word() -> None:
    assert outcome("none").named
    assert outcome("none", anomalies=(("duplicate", Level.ALLOWED),)).named
    assert not outcome("none", consumed=99).named
    assert not outcome("none", consumed=99, acked=99).named
    assert not outcome("none", anomalies=(("stall", Level.WARN),)).named
    assert not outcome("none", causes=("leader-rejections",)).named


def test_a_control_may_lack_only_what_was_never_acknowledged() -> None:
    assert outcome("offset-race", consumed=90, acked=90, installed=False).named
    assert not outcome("offset-race", consumed=89, acked=90, installed=False).named
    said = outcome("offset-race", anomalies=RACE, causes=("offset-assigned-twice",))
    assert said.named
    assert not outcome("offset-race", anomalies=RACE, installed=False).named


def test_exit_code_is_zero_only_if_all_were_named() -> None:
    named = outcome("offset-race", anomalies=RACE, causes=("offset-assigned-twice",))
    assert table.exit_code([outcome("none"), named]) == 0
    assert table.exit_code([outcome("none"), named, outcome("bit-flip")]) == 1
    assert table.exit_code([]) == 1


def test_json_is_a_list_with_these_fields() -> None:
    said = outcome("offset-race", consumed=80, anomalies=RACE, causes=("offset-assigned-twice",))
    assert json.loads(table.as_json([said])) == [
        {
            "defect": "offset-race",
            "consumed": 80,
            "missing": 20,
            "anomalies": ["inconsistent-offsets", "lost-write"],
            "cause": "offset-assigned-twice",
            "named": True,
        }
    ]


def test_the_clean_line_says_one_hundred_percent_and_nothing_else() -> None:
    assert table.cells(outcome("none")) == ("no defect", "100", "0", "100%", "", "", "yes")
    almost = outcome("none", consumed=99)
    assert table.cells(almost)[3] == "99.0%"
    assert table.cells(almost)[-1] == "NO"


def test_the_table_fits_a_narrow_terminal() -> None:
    said = outcome("offset-race", anomalies=RACE, causes=("offset-assigned-twice",))
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(table.as_table([said]))
    text = "".join(captured.get().split())
    assert "…" not in text
    assert max(map(len, captured.get().splitlines())) <= 80
