# The Rust part: its public names are those of the package, in __init__.pyi.
from typing import Any

def __getattr__(name: str) -> Any: ...
