"""Make the automation that tells people of failed gates and alerts: it posts the sentence of each to a webhook.

    python deployments/automations.py --url-file webhook-url.txt

It speaks to the server that PREFECT_API_URL names, and changes what an earlier call made. The URL is kept in a Prefect Webhook
block, encrypted on the server. What is posted is `{"text": "…"}`, as Slack and Mattermost take it; for others change
`_automation`. A run that crashes emits no event of STEF's, so a second automation tells of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from prefect.automations import AutomationCore
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.types import SecretDict

BLOCK = "stef-webhook"
EVENTS = {"stef.gate.failed", "stef.alert.raised", "stef.budget.used_up", "stef.endpoint.down"}
AT_ONCE = timedelta(0)
ENDED_BADLY = {"prefect.flow-run.Crashed", "prefect.flow-run.TimedOut"}


def main() -> None:
    """Read the URL, keep it in a block, and make or change both automations."""
    parser = argparse.ArgumentParser(description="Tell people of failed gates and alerts.")
    parser.add_argument("--url-file", type=Path, required=True, help="file whose one line is the URL to post to")
    try:
        url = parser.parse_args().url_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        sys.exit(f"--url-file: {error}")
    if not url.startswith(("http://", "https://")):
        sys.exit("--url-file: its line is no http:// or https:// URL")
    block = Webhook(method="POST", url=url, headers=SecretDict({"content-type": "application/json"})).save(
        BLOCK, overwrite=True
    )
    for automation in automations(UUID(str(block))):
        apply(automation)


def automations(block: UUID) -> list[AutomationCore]:
    """What is told, and to whom.

    Args:
        block: The Webhook block that is called.
    """
    days: dict[str, str | list[str]] = {"prefect.resource.id": ["stef.day.*", "stef.agent.*"]}
    ours: dict[str, str | list[str]] = {
        "prefect.resource.role": "flow",
        "prefect.resource.name": ["daily-scoring", "backfill", "calibration", "report"],
    }
    return [
        _automation(
            "stef: tell of failed gates and alerts",
            "Posts the sentence of each failed gate and alert, of a budget used up and of an endpoint that is down.",
            EventTrigger(expect=EVENTS, match=days, posture=Posture.Reactive, threshold=1, within=AT_ONCE),
            "{{ (event.event ~ ': ' ~ event.payload.message) | tojson }}",
            block,
        ),
        _automation(
            "stef: tell of crashed runs",
            "Posts the name of each run that crashed or timed out.",
            EventTrigger(expect=ENDED_BADLY, match_related=ours, posture=Posture.Reactive, threshold=1, within=AT_ONCE),
            "{{ ('STEF: flow run ' ~ event.resource.name ~ ' ended as ' ~ event.event) | tojson }}",
            block,
        ),
    ]


def _automation(name: str, description: str, trigger: EventTrigger, text: str, block: UUID) -> AutomationCore:
    payload = json.dumps({"text": "TEXT"}).replace('"TEXT"', text)  # the template writes its own quotes
    action = CallWebhook(block_document_id=block, payload=payload)
    return AutomationCore(name=name, description=description, enabled=True, trigger=trigger, actions=[action])


def apply(automation: AutomationCore) -> None:
    """Make an automation, or change the one of its name."""
    with get_client(sync_client=True) as client:
        there = client.read_automations_by_name(automation.name)
        if there:
            client.update_automation(there[0].id, automation)
        else:
            client.create_automation(automation)
    print(f"{'changed' if there else 'made'}: {automation.name}")


if __name__ == "__main__":
    main()
