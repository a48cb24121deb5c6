"""All experiments. A row is an experiment."""

from __future__ import annotations

from typing import Final

from paired_servicebus.verify.access_experiments import ACCESS_EXPERIMENTS
from paired_servicebus.verify.delivery_experiments import DELIVERY_EXPERIMENTS
from paired_servicebus.verify.entity_experiments import ENTITY_EXPERIMENTS
from paired_servicebus.verify.experiment import Experiment
from paired_servicebus.verify.fidelity_experiments import FIDELITY_EXPERIMENTS

EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    *ACCESS_EXPERIMENTS,
    *ENTITY_EXPERIMENTS,
    *DELIVERY_EXPERIMENTS,
    *FIDELITY_EXPERIMENTS,
)
