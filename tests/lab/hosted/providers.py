"""Providers of credentials, as a project would write them."""

import json
import os
from pathlib import Path

from redis.credentials import CredentialProvider

FILE = "DELAYQ_TEST_CREDENTIALS"


class FromFile(CredentialProvider):
    """The login in a file, ``["user", "password"]``, which another program rotates."""

    def get_credentials(self):
        return tuple(json.loads(Path(os.environ[FILE]).read_text(encoding="utf-8")))


class Told(CredentialProvider):
    """A login that a test sets, or an error to raise."""

    def __init__(self, *login):
        self.login, self.error = login, None
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.login


class Broken(CredentialProvider):
    def __init__(self):
        raise KeyError("s3cret")
