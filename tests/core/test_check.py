"""Validators and errors: rule, value and remedy, in one line."""

from __future__ import annotations

import math

import pytest

from posse.core import check
from posse.core.check import require
from posse.core.errors import (
    BudgetError,
    CertificateError,
    ConfigError,
    DataError,
    DisagreementError,
    EnrolmentError,
    FrameError,
    MissingExtraError,
    PolicyError,
    PosseError,
    ProtocolError,
    StoreError,
)

ERRORS = (
    ConfigError,
    PolicyError,
    DataError,
    StoreError,
    MissingExtraError,
    ProtocolError,
    FrameError,
    DisagreementError,
    BudgetError,
    CertificateError,
    EnrolmentError,
)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf])
def test_positive_refuses_and_names_the_keyword(value: float) -> None:
    with pytest.raises(ConfigError, match="tau must be"):
        check.positive(tau=value)


def test_positive_takes_positive_numbers() -> None:
    check.positive(tau=1)
    check.positive(tau=5e-324)


@pytest.mark.parametrize("value", [1.999, math.nan, math.inf])
def test_at_least_refuses(value: float) -> None:
    with pytest.raises(ConfigError, match="owners must be"):
        check.at_least(2, owners=value)


def test_at_least_takes_its_minimum() -> None:
    check.at_least(2, owners=2)


def test_between_is_closed_unless_told() -> None:
    check.between(0, 1, epsilon=0)
    check.between(0, 1, epsilon=1)
    check.between(0, 1, open_low=True, beta=1)
    with pytest.raises(ConfigError, match=r"beta must be in \(0, 1\], got 0"):
        check.between(0, 1, open_low=True, beta=0)


@pytest.mark.parametrize("value", [-1e-12, 1.0000001, math.nan, math.inf])
def test_between_refuses(value: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be"):
        check.between(0, 1, epsilon=value)


def test_one_of_suggests_the_nearest_word() -> None:
    check.one_of(("inverse", "inverse-sqrt"), schedule="inverse")
    with pytest.raises(ConfigError, match=r"unknown schedule 'invers'\. Did you mean 'inverse'\?"):
        check.one_of(("inverse", "sqrt"), schedule="invers")


def test_nearest_lists_what_is_known_when_nothing_is_near() -> None:
    assert check.nearest("zzz", ("ucb", "softmax")) == " Known: softmax, ucb."


def test_every_error_is_one_family_with_its_own_stable_code() -> None:
    codes = {error.code for error in ERRORS}
    assert len(codes) == len(ERRORS)
    assert codes == {
        "P100",
        "P110",
        "P200",
        "P300",
        "P400",
        "P500",
        "P510",
        "P530",
        "P600",
        "P700",
        "P710",
    }
    assert all(issubclass(error, PosseError) and error.exit_code == 2 for error in ERRORS)
    assert issubclass(FrameError, ProtocolError)


def test_an_error_reads_code_first() -> None:
    assert str(DataError("there is no file x.csv.")) == "[P200] there is no file x.csv."


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    assert require("math", extra="plot") is math
    with pytest.raises(
        MissingExtraError, match=r"no_such_module is needed .* pip install .*\[plot\]'"
    ):
        require("no_such_module.inside", extra="plot")
