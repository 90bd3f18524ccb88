"""Exploration of contextual bandits by name; and the settings that choose one.

A kind that ships is a class and one entry of `EXPLORATIONS` in `explorations`. A user's own is a
function of the scores that gives chances, `module:function`, or a table of it and parameters.

>>> exploration("softmax", {"beta": 0.1}), exploration({"name": "falcon", "gamma": 10})
(Softmax(beta=0.1), Falcon(mu=None, gamma=10.0))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import field_validator, model_validator

from posse.core.errors import ConfigError
from posse.core.settings import IMPORTS
from posse.policies.contextual.explorations import EXPLORATIONS, Exploration, adopt
from posse.policies.contextual.schedules import CONSTANT, check_schedule
from posse.policies.registry import Choice, Registry, with_parameters

_REGISTRY = Registry(
    Exploration,
    EXPLORATIONS.values(),
    rule="a function of the scores that gives chances, or a subclass of posse.policies.Exploration",
    example="function",
    adopt=adopt,
)

PARAMETERS = tuple(_REGISTRY.settings_fields())
"""Names of the parameters of all registered kinds, each a setting and a flag."""

exploration = _REGISTRY.make
described = _REGISTRY.described
parameters_of = _REGISTRY.parameters_of


@with_parameters
class ExplorationSettings(Choice):
    """How arms are chosen from predicted rewards: one setting for each parameter that some
    registered kind has.

    A parameter that the kind does not have is an error, one left out has its default.

    >>> ExplorationSettings(policy="falcon", gamma=10).exploration()
    Falcon(mu=None, gamma=10.0)
    """

    panel: ClassVar[str] = "How to choose"
    registry: ClassVar[Registry[Exploration]] = _REGISTRY

    policy: Annotated[Any, IMPORTS] = "softmax"
    """How to choose from predicted rewards: greedy, epsilon-greedy, softmax, falcon;
    module:function or file.py:function of your own; or a table of one of these with parameters.
    """

    def exploration(self) -> Exploration:
        """Build it."""
        made: Exploration = self._made()
        return made


class ScheduledSettings(ExplorationSettings):
    """How arms are chosen, and how that changes over deployments."""

    panel = ExplorationSettings.panel

    schedule: Annotated[str, IMPORTS] = CONSTANT
    """How epsilon, beta or gamma changes from deployment to deployment: constant; inverse-sqrt or
    inverse (less and less exploration); values in turn, such as 0.2,0.1,0.05; falcon, FALCON's own
    gamma, where a given gamma is its factor c, else 1/30; or file.py:function of the deployment's
    number.
    """

    @field_validator("schedule", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ",".join(str(one) for one in value)
        if callable(value):
            raise ConfigError(
                "schedule must be a name, numbers or file.py:function, got a function. Put it into "
                "a file and name it, "
                "such as schedule='mine.py:rate'."
            )
        return str(value) if isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _fitting_schedule(self) -> Self:
        check_schedule(self.schedule, self.exploration())
        return self
