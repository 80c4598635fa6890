"""The operators of a plan at work: each module here registers what it implements of `planner/operators/`."""

from importlib import import_module
from pkgutil import iter_modules

from runtime.operators.base import Context as Context
from runtime.operators.base import Operator as Operator
from runtime.operators.registry import make_operator as make_operator
from runtime.operators.registry import make_step as make_step
from runtime.operators.registry import piece_of_state as piece_of_state

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
