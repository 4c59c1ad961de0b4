"""Reads logins, TLS and numbers from options, and checks each.

An unknown option is refused by name, without its value, which may be a secret.
"""

from __future__ import annotations

import difflib
import math
import ssl
from collections.abc import Mapping
from typing import Any

from kombu.utils.imports import symbol_by_name

from ..errors import InvalidSetting, UnknownSetting
from ..servers.endpoint import TLS, Credentials, client_refuses, connection_refuses

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
    """Refuse options of the store that nothing reads: a misspelt one may be its login.

    Raises:
        UnknownSetting: the setting of that *name* has no such option; the error suggests the
            nearest.
        InvalidSetting: redis-py does not accept an option for TLS or sentinels.
    """
    for word in options:
        if word not in _OF_STORES:
            (nearest,) = difflib.get_close_matches(str(word), _OF_STORES, n=1, cutoff=0)
            raise UnknownSetting(f"{name}[{word!r}]", f"{name}[{nearest!r}]")
    tls = options.get("ssl")
    if not (tls is None or isinstance(tls, (bool, Mapping))):
        raise InvalidSetting(f"{name}['ssl']", type(tls).__name__, _SSL)
    if isinstance(tls, Mapping):
        _refuse(tls, connection_refuses(tls), f"{name}['ssl']")
    asking = options.get("sentinel_kwargs")
    if isinstance(asking, Mapping):
        _refuse(asking, client_refuses(asking), f"{name}['sentinel_kwargs']")


def _refuse(tls: Mapping[str, Any], why: str, name: str) -> None:
    if why:
        raise InvalidSetting(name, sorted(map(str, tls)), f"redis-py's options; its error: {why}")


def login_of(username: Any, password: Any, provider: Any, name: str) -> dict[str, Any]:
    """Return the login for an :class:`Endpoint`; *name* is the setting that has the provider."""
    if provider is not None:
        return {"credentials": credentials_of(provider, f"{name}['credential_provider']")}
    return {"username": username, "password": password}


def credentials_of(provider: Any, name: str) -> Credentials:
    """Return the credentials of a provider, given as an instance, its class or the class's path.

    Args:
        name: The name of the setting.

    Raises:
        InvalidSetting: it is no provider, or cannot be made.
    """
    shown = provider if isinstance(provider, str) else f"of type {type(provider).__name__}"
    made, failure = None, ""
    try:
        found = symbol_by_name(provider) if isinstance(provider, str) else provider
        made = found() if isinstance(found, type) else found
    except Exception as error:
        failure = f"; making it raised {type(error).__name__}"
    if failure:  # raised here, so that it does not refer to that error, whose text may be secret
        raise InvalidSetting(name, shown, _PROVIDER + failure)
    if not callable(getattr(made, "get_credentials", None)):
        raise InvalidSetting(name, shown, _PROVIDER)
    return Credentials(made)


def tls_of(tls: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the TLS options for redis-py; it checks certificates and names unless the app says no.

    Args:
        tls: Options for redis-py; those that are not about TLS are left out.
        name: The setting that has them.

    Raises:
        InvalidSetting: redis-py has no such option, or the options for certificates are invalid.
    """
    options = {word: value for word, value in tls.items() if word.startswith(TLS)}
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
    """Return a number, also from text; NaN if it is none."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
