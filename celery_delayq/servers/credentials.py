"""Names and passwords that a provider tells anew for each connection.

Only its name is told of what goes wrong in it: the text of its error may contain what is secret.
"""

from __future__ import annotations

from typing import Any

import redis


class Credentials(redis.CredentialProvider):
    """Asks a provider of redis-py's kind, and says which one it was that failed.

    Args:
        provider: Has a method ``get_credentials``, which returns ``(username, password)`` or
            ``(password,)``.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The provider's class."""
        kind = type(self._provider)
        return f"{kind.__module__}.{kind.__qualname__}"

    def get_credentials(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the provider tells now.

        Raises:
            redis.exceptions.AuthenticationError: it failed, or told no login.
        """
        told: Any = None
        why = ""
        try:
            told = self._provider.get_credentials()
        except Exception as error:
            why = f"failed: {type(error).__name__}"
        if not why and not _is_login(told):
            why = "returned neither (username, password) nor (password,)"
        if why:  # raised here, where nothing holds that error
            raise redis.AuthenticationError(f"the credential provider {self.name} {why}")
        return tuple(told)


def _is_login(told: Any) -> bool:
    return (
        isinstance(told, (tuple, list))
        and len(told) in (1, 2)
        and all(isinstance(word, (str, bytes)) for word in told)
    )
