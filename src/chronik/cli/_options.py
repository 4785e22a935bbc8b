"""Options that several commands share, and how their texts are read."""

import codecs
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from chronik.model.names import topic_name_error

DEFAULT_PORT = 9092
F = TypeVar("F", bound=Callable[..., Any])


def client_options(function: F) -> F:
    """`--bootstrap` and `-X`."""
    extra = click.option(
        "-X",
        "extra",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of librdkafka, e.g. -X security.protocol=SSL. Repeatable.",
    )
    return bootstrap_option(extra(function))


def bootstrap_option(function: F) -> F:
    """`--bootstrap` alone."""
    option = click.option(
        "--bootstrap",
        "-b",
        envvar="CHRONIK_BOOTSTRAP",
        default=f"localhost:{DEFAULT_PORT}",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,...]",
        callback=_bootstrap,
        help="Where the cluster is.",
    )
    return option(function)


def _bootstrap(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    return ",".join("{}:{}".format(*split_address(one)) for one in value.split(","))


def split_address(address: str) -> tuple[str, int]:
    """Host and port; an IPv6 host keeps its brackets, as librdkafka wants it."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address.strip(), str(DEFAULT_PORT)
    if (
        not host
        or "/" in host
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port) < 65536
    ):
        raise click.BadParameter(
            f"{address!r} is no HOST:PORT, e.g. localhost:{DEFAULT_PORT}",
            param_hint="'--bootstrap'",
        )
    return host, int(port)


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is no KEY=VALUE", param_hint=f"'{option}'")
        found[key.strip()] = value
    return found


def topic_name(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Callback that refuses a name, or one of several, that no topic can have."""
    for name in (value,) if isinstance(value, str) else value or ():
        if error := topic_name_error(name):
            raise click.BadParameter(error)
    return value


def raw(text: str) -> bytes:
    """The bytes of an argument as the shell gave them, which need not be UTF-8."""
    return os.fsencode(text)


def unescaped(text: str, option: str) -> bytes:
    r"""The bytes of a text in which \t, \n, \\, \0 and \xNN stand for what they do in Python."""
    try:
        return codecs.escape_decode(raw(text))[0]
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint=f"'{option}'") from error
