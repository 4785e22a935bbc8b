"""The one way in which a lab node differs from the product: a part is replaced in its process."""

import inspect
from typing import Any


def replace(owner: Any, name: str, by: Any) -> Any:
    """Puts `by` in the place of the owner's part and returns what was there."""
    former = getattr(owner, name)  # a part that was renamed must not pass for replaced
    if callable(former) and not inspect.isclass(former):
        _check_call(former, by)
    setattr(owner, name, by)
    return former


def _check_call(former: Any, by: Any) -> None:
    """A part that is called with more than it once was must not fail in the place of the defect."""
    wanted = inspect.signature(former)
    named = [one for one in wanted.parameters.values() if one.kind is one.KEYWORD_ONLY]
    placed = len(wanted.parameters) - len(named)
    try:
        inspect.signature(by).bind(*[None] * placed, **{one.name: None for one in named})
    except TypeError as error:
        raise TypeError(f"{former} is called with {wanted}: {error}") from error
