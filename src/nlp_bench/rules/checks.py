"""All kinds of checks by the word that a rule file uses."""

from nlp_bench.rules.ending import ExitStatus, FinalIteration, FiniteLoss, SkippedIterations, WholeLog, Window
from nlp_bench.rules.frozen import EqualsModel, ModelRule, ParameterCount
from nlp_bench.rules.how import Precision, RealData, Released, Stated
from nlp_bench.rules.limit import TimeLimit
from nlp_bench.rules.rule import Rule
from nlp_bench.rules.setting import Agreement, SettingRule

CHECKS: dict[str, type[Rule]] = {
    "model": ModelRule,
    "equals-model": EqualsModel,
    "parameter-count": ParameterCount,
    "precision": Precision,
    "released": Released,
    "stated": Stated,
    "real-data": RealData,
    "finite-loss": FiniteLoss,
    "skipped-iterations": SkippedIterations,
    "final-iteration": FinalIteration,
    "exit-status": ExitStatus,
    "whole-log": WholeLog,
    "window": Window,
    "agreement": Agreement,
    "time-limit": TimeLimit,
    "setting": SettingRule,
}
