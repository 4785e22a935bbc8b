"""The one way in which a lab node differs from the product: a part is replaced in its process."""

from typing import Any


def replace(owner: Any, name: str, by: Any) -> Any:
    """Puts `by` in the place of the owner's part and returns what was there."""
    former = getattr(owner, name)  # a part that was renamed must not pass for replaced
    setattr(owner, name, by)
    return former
