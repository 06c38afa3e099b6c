"""What the engine room writes down, in English and Chinese: decisions, steps of restarts, refusals, answers.

Between braces stands what another sentence fills in. It must say the same in both languages by itself, or be in here.
tests/dashboard/test_phrases.py finds sentences of the code that are missing.
"""

from __future__ import annotations

from dashboard.phrasebook.engines import ADDRESSES, IDENTITIES, SECRETS
from dashboard.phrasebook.recovery import ANSWERS_TO_RESTARTS
from dashboard.phrasebook.refusals import FLASHES, REFUSALS
from dashboard.phrasebook.savepoints import IMPORTS

PHRASES = {
    phrase: chinese
    for part in (
        *(ANSWERS_TO_RESTARTS, REFUSALS, FLASHES, IMPORTS),
        *(ADDRESSES, IDENTITIES, SECRETS),
    )
    for phrase, chinese in part.items()
}
