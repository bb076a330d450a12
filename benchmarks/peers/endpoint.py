"""The loopback endpoint of the tests, which also speaks each peer's form of an answer, and approves of every row.

    python -m benchmarks.peers.endpoint --latency 0.1

As each good answer is the best one, a worse grade tells that a failure was taken for an answer.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from tests.llm_endpoint import Endpoint, answer_to, main

LINE = re.compile(r"^(\w+): \[(?:score|average)\]", re.MULTILINE)  # SQLAS names the lines it wants
RAGAS = {"response_query_explaination": "same", "reference_query_explaination": "same", "equivalence": True}
RAGAS_COLLECTIONS = {"response_explanation": "same", "reference_explanation": "same", "equivalent": True}


class PeersEndpoint(Endpoint):
    """Answers by the shape of the request."""

    def answer(self, body: dict[str, Any]) -> str:
        text = "\n".join(str(message["content"]) for message in body["messages"])
        if "json_schema" in body.get("response_format", {}):
            given = answer_to(body)
            return json.dumps(given | {"grade": "correct", "confidence": 0.95} if "grade" in given else given)
        if "response_query_explaination" in text:
            return json.dumps(RAGAS)
        if "response_explanation" in text:
            return json.dumps(RAGAS_COLLECTIONS)
        if lines := LINE.findall(text):
            return "\n".join([*(f"{name}: 0.9" for name in lines), "Reasoning: as asked"])
        return "Yes\nAs asked."


if __name__ == "__main__":
    logging.getLogger("aiohttp.server").disabled = True  # which tells of each client that gives up and goes
    main(PeersEndpoint)
