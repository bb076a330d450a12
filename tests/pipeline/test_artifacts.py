"""What a day leaves to read in Prefect."""

from __future__ import annotations

import datetime as dt
import json

from stef_core.frames import AGENT_ALERTS, AGENT_DAILY, frame_of
from tasks.artifacts import summary

DAY = dt.date(2026, 3, 2)


def test_the_summary_tells_alerts_notes_and_warnings_but_no_failure_that_stops_a_day() -> None:
    failures = [{"severity": "warning", "message": "gate volume: few | <b>"}, {"severity": "critical", "message": "gone"}]
    run = {
        "rows_scored": 9, "rows_in": 10, "rows_unscored": 1, "judge": "symbolic", "notes": '["a note"]',
        "gates": json.dumps([{"gate": "volume", "failures": failures}]),
    }  # fmt: skip
    alert = dict.fromkeys(AGENT_ALERTS) | {"message": "a: version v2 is worse"}

    text = summary(DAY, run, AGENT_DAILY.to_frame(), frame_of([alert], AGENT_ALERTS))

    assert "9 of 10 rows scored" in text
    assert "- **a: version v2 is worse**" in text
    assert "- a note" in text
    assert "- warning: gate volume: few \\| &lt;b>" in text
    assert "gone" not in text
