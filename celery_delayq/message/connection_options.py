"""What options say of logins, TLS and numbers, each checked where it is read.

A word that nobody knows is refused by its name, and what it holds is not shown: it may be a secret.
"""

from __future__ import annotations

import difflib
import math
import ssl
from collections.abc import Mapping
from typing import Any

from kombu.utils.imports import symbol_by_name

from ..errors import InvalidSetting, UnknownSetting
from ..servers.credentials import Credentials
from ..servers.words import TLS, client_refuses, connection_refuses

_OF_STORES = (
    "master_name",
    "sentinel_kwargs",
    "min_other_sentinels",
    "address_map",
    "credential_provider",
    "ssl",
)
_PROVIDER = "a redis.CredentialProvider, its class, or the dotted name of that"
_SSL = "true or false, or a mapping of redis-py's words for TLS, such as ssl_ca_certs"
_REQUIREMENTS = {
    name: requirement
    for requirement in ssl.VerifyMode
    for name in (requirement, requirement.name, requirement.name.removeprefix("CERT_").lower())
}


def check_words_of_store(options: Mapping[str, Any], name: str) -> None:
    """Refuse what nothing would read of a store's options: what was meant might be its login.

    Raises:
        UnknownSetting: there is no such word in the setting of that *name*; tells the nearest one.
        InvalidSetting: what it says of TLS or of sentinels is none of what redis-py takes.
    """
    for word in options:
        if word not in _OF_STORES:
            (nearest,) = difflib.get_close_matches(str(word), _OF_STORES, n=1, cutoff=0)
            raise UnknownSetting(f"{name}[{word!r}]", f"{name}[{nearest!r}]")
    said = options.get("ssl")
    if not (said is None or isinstance(said, (bool, Mapping))):
        raise InvalidSetting(f"{name}['ssl']", type(said).__name__, _SSL)
    if isinstance(said, Mapping):
        _refuse(said, connection_refuses(said), f"{name}['ssl']")
    asking = options.get("sentinel_kwargs")
    if isinstance(asking, Mapping):
        _refuse(asking, client_refuses(asking), f"{name}['sentinel_kwargs']")


def _refuse(said: Mapping[str, Any], why: str, name: str) -> None:
    if why:
        raise InvalidSetting(name, sorted(map(str, said)), f"what redis-py takes; it says: {why}")


def login_of(username: Any, password: Any, provider: Any, name: str) -> dict[str, Any]:
    """How to be let in, for an :class:`Endpoint`; *name* is of what holds the provider."""
    if provider is not None:
        return {"credentials": credentials_of(provider, f"{name}['credential_provider']")}
    return {"username": username, "password": password}


def credentials_of(provider: Any, name: str) -> Credentials:
    """What asks a provider: an instance, its class, or the class's dotted name, as kombu takes it.

    Args:
        name: The setting's.

    Raises:
        InvalidSetting: it is none, or cannot be made.
    """
    said = provider if isinstance(provider, str) else f"of type {type(provider).__name__}"
    made, failure = None, ""
    try:
        found = symbol_by_name(provider) if isinstance(provider, str) else provider
        made = found() if isinstance(found, type) else found
    except Exception as error:
        failure = f"; making it raised {type(error).__name__}"
    if failure:  # raised here, where nothing holds that error: its text may be secret
        raise InvalidSetting(name, said, _PROVIDER + failure)
    if not callable(getattr(made, "get_credentials", None)):
        raise InvalidSetting(name, said, _PROVIDER)
    return Credentials(made)


def tls_of(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What redis-py shall do about TLS; certificates and names are checked unless the app says no.

    Args:
        said: Words of redis-py's; those that are not about TLS are left out.
        name: The setting's that holds them.

    Raises:
        InvalidSetting: redis-py has no such word, or what is said of certificates cannot be.
    """
    options = {word: value for word, value in said.items() if word.startswith(TLS)}
    _refuse(options, connection_refuses(options), name)
    word = options.get("ssl_cert_reqs", "required")
    is_word = isinstance(word, (str, int))
    requirement = ssl.CERT_NONE if word is None else _REQUIREMENTS.get(word) if is_word else None
    if requirement is None:
        why = "none, optional or required"
        raise InvalidSetting(f"{name}['ssl_cert_reqs']", word, why)
    names = str(options.get("ssl_check_hostname", True)).lower() != "false"
    options["ssl_cert_reqs"] = requirement
    options["ssl_check_hostname"] = names and requirement is not ssl.CERT_NONE
    return options


def number_of(value: Any) -> float:
    """A number, which may be a text; NaN where it is none."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
