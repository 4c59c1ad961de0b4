"""Logins from a provider, which returns a fresh one for each connection.

An error names only the provider: the text of the provider's own error may contain secrets.
"""

from __future__ import annotations

from typing import Any

import redis

from ..threads import spared


class Credentials(redis.CredentialProvider):
    """Calls a credential provider, as redis-py has it, and names it if it fails.

    Args:
        provider: An object whose ``get_credentials`` returns ``(username, password)`` or
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
        """Return the provider's current login.

        Raises:
            redis.exceptions.AuthenticationError: the provider failed, or returned no login.
        """
        login: Any = None
        why = ""
        try:
            login = spared(self._provider.get_credentials)()
        except Exception as error:
            why = f"failed: {type(error).__name__}"
        if not why and not _is_login(login):
            why = "returned neither (username, password) nor (password,)"
        if why:  # raised here, so that it does not refer to the provider's error
            raise redis.AuthenticationError(f"the credential provider {self.name} {why}")
        return tuple(login)


def _is_login(login: Any) -> bool:
    return (
        isinstance(login, (tuple, list))
        and len(login) in (1, 2)
        and all(isinstance(word, (str, bytes)) for word in login)
    )
