"""The options of neuron-cc (Inf1): what --fast-math and --fp32-cast mean, and what a wrong line says.

The tables cite AWS's documents by the sections of `reference/neuron.md` that collect them.
"""

from __future__ import annotations

import itertools

import pytest
from tests.support.parameters import each_of

from neuronsim.casting.flags import OPTIONS, CastSettings, Flags, parse_flags, verbosity
from neuronsim.casting.flags.neuron_cc import FP32_CASTS, RELAYOUTS, fast_math_line
from neuronsim.errors import InvalidFlag
from neuronsim.targets import find_release

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

SDK = find_release("2.26")


def parsed(flags: str | list[str], sdk: str = "2.26") -> Flags:
    return parse_flags(flags, find_release(sdk), "neuron-cc")


def casts(flags: str) -> tuple[str, str, str]:
    s = parsed(flags).settings
    assert s.compiler == "neuron-cc"
    assert s.mixed_precision_accumulation  # 2.2: partial sums stay in FP32
    return s.auto_cast, s.auto_cast_type, s.relayout


# ---- neuron.md 2.2 and 2.3: what each value means ------------------------------------------------

ALL, MATMULT_BF16 = ("all", "bf16", "bf16"), ("matmult", "bf16", "bf16")


@each_of(
    ("values", "expected"),
    [
        # The rows of the table of 2.2. `all` is the default, as 2.4 settles it.
        ("", ALL),
        ("all", ALL),
        ("none", ("matmult", "bf16", "")),
        ("fast-relayout", ALL),
        ("no-fast-relayout", ("all", "bf16", "")),
        ("fp32-cast-all", ALL),
        ("fp32-cast-all-fp16", ("all", "fp16", "fp16")),
        ("fp32-cast-matmult", ("matmult", "bf16", "fp16")),
        ("fp32-cast-matmult-bf16", MATMULT_BF16),
        ("fp32-cast-matmult-fp16", ("matmult", "fp16", "fp16")),
        # The rules of its box: what is said in detail overwrites all and none.
        ("all fp32-cast-matmult", ("matmult", "bf16", "fp16")),
        ("fp32-cast-all-fp16 all", ("all", "fp16", "fp16")),
        ("all no-fast-relayout", ("all", "bf16", "")),
        ("none fast-relayout", MATMULT_BF16),
        ("none fp32-cast-all", ("all", "bf16", "")),
        ("fp32-cast-all-fp16 fast-relayout none", ("all", "fp16", "fp16")),
        # The third step of the flow in 2.5.
        ("fp32-cast-matmult no-fast-relayout", ("matmult", "bf16", "")),
    ],
)
def test_fast_math_values(values: str, expected: tuple[str, str, str]) -> None:
    flags = f"--fast-math {values}" if values else ""
    assert casts(flags) == expected
    assert casts(flags.replace(" ", "=", 1)) == expected


@pytest.mark.parametrize(
    ("value", "same_as"),
    # 2.3, in its order; each is the fast-math value with the prefix fp32-cast-.
    [(v, f"fp32-cast-{v}") for v in ("all", "matmult", "matmult-fp16", "matmult-bf16", "all-fp16")],
)
def test_fp32_cast_values_and_their_deprecation(value: str, same_as: str) -> None:
    flags = parsed(f"--fp32-cast {value}")
    assert flags.settings == parsed(f"--fast-math {same_as}").settings
    (message,) = flags.messages
    assert message.level == "warning"
    assert message.text == (
        f"--fp32-cast is deprecated: --fast-math {same_as} fast-relayout means the same"
    )


@each_of("order", ["{0} {1}", "{1} {0}"])
@each_of(
    ("fast_math", "fp32_cast", "expected"),
    [
        # 2.2: --fp32-cast has the higher priority, over the casts only.
        ("all", "matmult", ("matmult", "bf16", "fp16")),
        ("none", "all", ("all", "bf16", "")),
        ("none", "matmult-fp16", ("matmult", "fp16", "")),
        ("fp32-cast-matmult-fp16", "all", ALL),
        ("fp32-cast-all", "matmult-bf16", MATMULT_BF16),
        ("fp32-cast-all no-fast-relayout", "all-fp16", ("all", "fp16", "")),
        # The advice for torch-neuron in 2.5.
        ("no-fast-relayout", "matmult", ("matmult", "bf16", "")),
    ],
)
def test_fp32_cast_overrides_the_casts_of_fast_math(
    fast_math: str, fp32_cast: str, expected: tuple[str, str, str], order: str
) -> None:
    line = order.format(f"--fast-math {fast_math}", f"--fp32-cast {fp32_cast}")
    assert casts(line) == expected
    (message,) = parsed(line).messages
    equivalent = message.text.partition(": ")[2].removesuffix(" means the same")
    assert casts(equivalent) == expected  # the line that it prints


def test_no_value_leaves_products_in_float32() -> None:
    # 2.2: Inf1 has no FP32 matmul, so that even `none` casts.
    for name in (*FP32_CASTS, "all", "none"):
        auto_cast, auto_cast_type, _ = casts(f"--fast-math {name}")
        assert auto_cast in ("matmult", "all")
        assert auto_cast_type in ("bf16", "fp16")


@each_of("pair", [("all", "none"), RELAYOUTS, *itertools.combinations(FP32_CASTS, 2)], ids=" ".join)
def test_values_that_exclude_each_other_are_both_named(pair: tuple[str, str]) -> None:
    for first, second in (pair, pair[::-1]):
        with pytest.raises(InvalidFlag, match=f"cannot be {first} and {second}: give one of"):
            parsed(f"--fast-math {first} {second}")


def test_of_several_fast_math_options_the_right_most_counts_and_it_says_so() -> None:
    flags = parsed("--fast-math none --fast-math fp32-cast-all-fp16")
    assert flags.settings == parsed("--fast-math fp32-cast-all-fp16").settings
    assert [m.text for m in flags.messages] == [
        "of several --fast-math the right-most counts; one takes several values"
    ]
    assert casts("--fp32-cast all --fp32-cast matmult") == ("matmult", "bf16", "fp16")


# ---- neuron.md 2.1: the other options ------------------------------------------------------------


@each_of(
    "flags",
    [
        *(f"--verbose {level}" for level in ("DEBUG", "INFO", "WARN", "ERROR")),
        "--framework XLA",
        "--neuroncore-pipeline-cores 4",
        "--neuroncore-pipeline-cores=1",
        "--enable-fast-loading-neuron-binaries",
        "--enable-fast-context-switch",
        "--output out.neff",
        "--io-config io.json",
    ],
)
def test_options_without_numeric_effect(flags: str) -> None:
    found = parsed(flags)
    assert found.settings == parsed("").settings
    name = flags.replace("=", " ").split()[0]
    assert found.without_effect == (name,)
    assert [m.text for m in found.messages] == [f"{name} changes no value"]


def test_every_option_of_the_page_is_there() -> None:
    # The usage line of 2.1; --target is neuronsim's, which chooses the compiler by it.
    assert {o.name for o in OPTIONS["neuron-cc"]} - {"--target"} == {
        *("--verbose", "--framework", "--io-config", "--neuroncore-pipeline-cores"),
        *("--enable-saturate-infinity", "--enable-fast-loading-neuron-binaries"),
        *("--enable-fast-context-switch", "--fp32-cast", "--fast-math", "--output"),
    }


def test_verbosity_of_neuron_cc() -> None:
    levels = {name: verbosity({"--verbose": name}) for name in ("DEBUG", "INFO", "WARN", "ERROR")}
    assert levels == {"DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}
    assert verbosity(parsed("").given) == levels["WARN"]


def test_saturate_infinity_since_1_17_0_0_of_2023_07() -> None:
    assert parsed("--enable-saturate-infinity").settings.saturate_infinity
    with pytest.raises(InvalidFlag, match=r"SDK 2\.12"):
        parsed("--enable-saturate-infinity", "2.11")


@pytest.mark.parametrize("framework", ["TENSORFLOW", "MXNET"])
def test_only_the_framework_XLA_can_be_read(framework: str) -> None:
    with pytest.raises(InvalidFlag, match=f"'{framework}': neuronsim reads HLO.*accepts XLA"):
        parsed(f"--framework {framework}")


@each_of(
    ("flags", "message"),
    [
        (
            "--fast-math fp32-cast-mathmult",
            r"did you mean 'fp32-cast-matmult'\?\): it accepts all, none,",
        ),
        ("--fast-math", "--fast-math needs a value: it accepts all, none, fp32-cast-all"),
        ("--fast-math --fp32-cast all", "--fast-math needs a value, not '--fp32-cast'"),
        ("--fast-math none model.hlo.pb", "cannot be 'model.hlo.pb'"),
        ("--fp32-cast bf16", "it accepts all, all-fp16, matmult, matmult-bf16, matmult-fp16"),
        ("--fp32-cast fp32-cast-all", "--fp32-cast cannot be 'fp32-cast-all'"),
        ("--neuroncore-pipeline-cores 0", "a number from 1 to 64"),
        ("--neuroncore-pipeline-cores many", "a number from 1 to 64"),
        ("--verbose info", r"did you mean 'INFO'\?\): it accepts DEBUG, INFO, WARN, ERROR"),
        (
            "--fast-math fp32-cast-matmul no-fast-relayut",
            "'fp32-cast-matmul' .*'fp32-cast-matmult'.*'no-fast-relayut' .*'no-fast-relayout'",
        ),
        ("--framework ONNX", "it accepts XLA"),
        ("--fast-maths none", r"unknown flag --fast-maths \(did you mean '--fast-math'\?\)$"),
        ("--auto-cast none", r"option of neuronx-cc .*for inf1 use --fast-math"),
        ("--optlevel 2", r"option of neuronx-cc .*for inf1 use --fast-math"),
    ],
)
def test_wrong_flags_say_what_is_accepted(flags: str, message: str) -> None:
    with pytest.raises(InvalidFlag, match=message):
        parsed(flags)


# ---- flag_line -----------------------------------------------------------------------------------


def test_flag_line_gives_every_setting_back() -> None:
    found = set()
    for name, relayout, saturate in itertools.product(FP32_CASTS, (True, False), (True, False)):
        cast, cast_type, transposes = FP32_CASTS[name]
        given = CastSettings(
            cast, cast_type, True, "neuron-cc", transposes if relayout else "", saturate
        )
        found.add(given.flag_line)
        assert parsed(given.flag_line).settings == given
    # Without fast transposes fp32-cast-matmult and -bf16 are one setting.
    assert len(found) == 2 * (5 + 4)


def test_casts_that_no_value_means_have_no_line() -> None:
    for wrong in (("none", "bf16", ""), ("all", "bf16", "fp16"), ("all", "tf32", "")):
        with pytest.raises(InvalidFlag, match="no --fast-math means"):
            fast_math_line(*wrong)
