"""``python -m tests.format``: write the frozen files of this version's format anew."""

import contextlib
import json
from pathlib import Path

from celery_delayq.contrib.care.lines import FORMAT, text_of
from celery_delayq.core.store.keys import SCHEMA
from tests.format import keys
from tests.format.filling import app_of, fill
from tests.support.redis_server import RedisServer

HERE = Path(__file__).parent


def main() -> None:
    with RedisServer() as server:
        fill(server.url(), server.client())
        frozen = keys.read(server.client())
        with contextlib.closing(app_of(server.url())) as delayq:
            dumped = [text_of(line) for line in delayq.dump()]
    text = json.dumps(frozen, indent=0)
    (HERE / f"v{SCHEMA}.json").write_text(f"{text}\n", "ascii")
    (HERE / f"v{FORMAT}.dump.jsonl").write_text("\n".join([*dumped, ""]), "ascii")
    print(f"{len(frozen)} keys, {len(text):,} bytes; a dump of {len(dumped)} lines")  # noqa: T201


if __name__ == "__main__":
    main()
