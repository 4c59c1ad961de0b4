"""Names and passwords that a provider tells anew for each connection.

    connect --> Credentials.within(seconds) --> a thread asks the provider --> AUTH
                            +--> no answer in time, or an error: the connection is not made

A provider may ask a service over a network, and redis-py would wait for it without a bound. Only
its name is told of what goes wrong in it: the text of its error may contain what is secret.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import redis


class Credentials:
    """What asks a provider of redis-py's kind.

    Args:
        provider: Has a method ``get_credentials``, which returns ``(username, password)`` or
            ``(password,)``.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._question: _Question | None = None

    @property
    def name(self) -> str:
        """The provider's class."""
        kind = type(self._provider)
        return f"{kind.__module__}.{kind.__qualname__}"

    def within(self, seconds: float) -> redis.CredentialProvider:
        """The same for redis-py, which then waits no longer than that."""
        return _Within(self, seconds)

    def ask(self, seconds: float) -> tuple[str, ...]:
        """What the provider tells now, or is about to tell somebody else.

        Raises:
            redis.exceptions.AuthenticationError: it failed, did not answer within *seconds*, or
                could not be asked.
        """
        question = self._question
        # Of one that hangs there is one thread, however often it is asked.
        if question is None or question.is_over or question.process != os.getpid():
            question = self._asked()
        if not question.done.wait(seconds):
            raise self._failed(f"did not answer within {seconds:.1f} s")
        if question.failure:
            raise self._failed(f"failed: {question.failure}")
        if not _is_login(question.told):
            raise self._failed("returned neither (username, password) nor (password,)")
        return tuple(question.told)

    def _asked(self) -> _Question:
        failure = ""
        try:
            self._question = question = _Question(self._provider)
        except RuntimeError as error:
            failure = type(error).__name__
        if failure:
            raise self._failed(f"was not asked, as no thread can be started: {failure}")
        return question

    def _failed(self, why: str) -> redis.AuthenticationError:
        return redis.AuthenticationError(f"the credential provider {self.name} {why}")


class _Within(redis.CredentialProvider):
    def __init__(self, credentials: Credentials, seconds: float) -> None:
        self._credentials = credentials
        self._seconds = seconds

    def get_credentials(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._credentials.ask(self._seconds)


class _Question:
    """One call of a provider, in a thread of its own."""

    def __init__(self, provider: Any) -> None:
        self.done = threading.Event()
        self.process = os.getpid()
        self.told: Any = None
        self.failure = ""  # the type of what it raised: its text, and that of its causes, is secret
        self._provider = provider
        threading.Thread(target=self._ask, name="delayq-credentials", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self.done.is_set()

    def _ask(self) -> None:
        try:
            self.told = self._provider.get_credentials()
        except BaseException as error:
            self.failure = type(error).__name__
        finally:
            self.done.set()


def _is_login(told: Any) -> bool:
    return (
        isinstance(told, (tuple, list))
        and len(told) in (1, 2)
        and all(isinstance(word, (str, bytes)) for word in told)
    )
