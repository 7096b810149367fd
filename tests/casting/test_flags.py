"""The options of neuronx-cc: spellings, defaults, and what a wrong one says."""

from __future__ import annotations

import pytest

from neuronsim.casting.flags import AUTO_CASTS, CAST_TYPES, OPTIONS, CastSettings, Option, parse_flags
from neuronsim.errors import InvalidFlag
from neuronsim.targets import Release, find_release

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

ENABLE, DISABLE = "--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation"
OLD, NEW = find_release("2.26"), find_release("2.27")
SILENT = [o for o in OPTIONS if o.name not in ("--auto-cast", "--auto-cast-type", ENABLE, DISABLE)]
WITH_VALUES = [o for o in OPTIONS if o.values]


def settings(flags: str, release: Release = OLD) -> CastSettings:
    return parse_flags(flags, release).settings


@pytest.mark.parametrize("separator", ["=", " "])
@pytest.mark.parametrize("value", AUTO_CASTS)
def test_auto_cast_values(value: str, separator: str) -> None:
    for release in (OLD, NEW):
        assert settings(f"--auto-cast{separator}{value}", release).auto_cast == AUTO_CASTS[value]


@pytest.mark.parametrize("separator", ["=", " "])
@pytest.mark.parametrize("value", CAST_TYPES)
def test_auto_cast_type_values(value: str, separator: str) -> None:
    assert settings(f"--auto-cast-type{separator}{value}").auto_cast_type == value


def test_values_are_those_of_the_guide() -> None:
    assert set(AUTO_CASTS) == {"none", "matmult", "matmul", "all"}
    assert {k: t.name for k, t in CAST_TYPES.items()} == {
        "bf16": "bfloat16",
        "fp16": "float16",
        "tf32": "tfloat32",
        "fp8_e4m3": "float8_e4m3",
    }


def test_matmul_is_matmult() -> None:
    assert settings("--auto-cast matmul", NEW) == settings("--auto-cast matmult", NEW)


@pytest.mark.parametrize("release", [OLD, NEW], ids=["2.26", "2.27"])
def test_mixed_precision_accumulation_flags_R3(release: Release) -> None:
    assert settings(ENABLE, release).mixed_precision_accumulation is True
    assert settings(DISABLE, release).mixed_precision_accumulation is False


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.26", CastSettings("matmult", "bf16", False)),
        ("2.27", CastSettings("none", "bf16", True)),
        ("2.3.0.4", CastSettings("matmult", "bf16", False)),
    ],
)
@pytest.mark.parametrize("flags", ["", "   ", []])
def test_release_defaults(version: str, expected: CastSettings, flags: str | list[str]) -> None:
    parsed = parse_flags(flags, find_release(version))
    assert parsed.settings == expected
    assert parsed.without_effect == ()


def test_an_option_changes_only_its_own_default() -> None:
    assert settings("--auto-cast-type fp16", NEW) == CastSettings("none", "fp16", True)
    assert settings("--auto-cast all", OLD) == CastSettings("all", "bf16", False)


def test_right_most_wins_across_spellings() -> None:
    flags = "--auto-cast=all --auto-cast-type bf16 --auto-cast none --auto-cast-type=tf32"
    assert settings(flags) == CastSettings("none", "tf32", False)


def test_a_wrong_value_is_an_error_even_if_a_later_one_wins() -> None:
    with pytest.raises(InvalidFlag, match="'some'"):
        settings("--auto-cast some --auto-cast all")


@pytest.mark.parametrize("option", SILENT, ids=lambda o: o.name)
def test_options_without_numeric_effect_are_reported(option: Option) -> None:
    values = [None] if option.values is None else option.values or ["any text.txt"]
    for value in values:
        words = [option.name] if value is None else [option.name, value]
        parsed = parse_flags(words, OLD)
        assert parsed.settings == settings("")
        assert parsed.without_effect == (option.name,)
        if value is not None:
            assert parse_flags([f"{option.name}={value}"], OLD) == parsed


def test_numeric_options_are_not_reported_as_silent_and_repeats_once() -> None:
    flags = f"--verbose info --auto-cast all -O1 {ENABLE} --optlevel 3 --verbose=debug"
    assert parse_flags(flags, OLD).without_effect == ("--verbose", "--optlevel")


@pytest.mark.parametrize("flags", ["-O2", "-O 2", "-O=2", "--optlevel 2", "--optlevel=2"])
def test_optlevel_spellings(flags: str) -> None:
    assert parse_flags(flags, OLD).without_effect == ("--optlevel",)


@pytest.mark.parametrize("flags", ["-O4", "-O 0", "-Ofast", "--optlevel=9"])
def test_optlevel_wrong_value(flags: str) -> None:
    with pytest.raises(InvalidFlag, match=r"--optlevel cannot be .*: it accepts 1, 2, 3"):
        parse_flags(flags, OLD)


def test_quoted_words_are_one_word() -> None:
    flags = "--logfile='a log.txt' \"--auto-cast\" 'all'"
    assert parse_flags(flags, OLD).without_effect == ("--logfile",)
    assert settings(flags).auto_cast == "all"


def test_a_list_is_not_split_again() -> None:
    assert parse_flags(["--logfile", "it's a log"], OLD).without_effect == ("--logfile",)


def test_the_list_given_is_not_consumed() -> None:
    words = ["--auto-cast", "all"]
    parse_flags(words, OLD)
    assert words == ["--auto-cast", "all"]


@pytest.mark.parametrize("flags", ["--logfile 'x", '--auto-cast "all', "--auto-cast all\\"])
def test_bad_quoting(flags: str) -> None:
    with pytest.raises(InvalidFlag, match="cannot be split into words"):
        parse_flags(flags, OLD)


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("--auto-casts", "--auto-cast"),
        ("--autocast-type=bf16", "--auto-cast-type"),
        ("--enable-mixed-precision-acumulation", ENABLE),
        ("--opt-level", "--optlevel"),
    ],
)
def test_unknown_flag_names_the_nearest(flag: str, near: str) -> None:
    with pytest.raises(InvalidFlag, match=f"unknown flag {flag.partition('=')[0]}.*'{near}'"):
        parse_flags(flag, OLD)


def test_unknown_flag_without_a_near_one_suggests_nothing() -> None:
    with pytest.raises(InvalidFlag) as error:
        parse_flags("--zzz", OLD)
    assert str(error.value) == "unknown flag --zzz"


@pytest.mark.parametrize("option", WITH_VALUES, ids=lambda o: o.name)
@pytest.mark.parametrize("form", ["{0}=wrong", "{0} wrong", "{0}="])
def test_wrong_value_lists_the_accepted_ones(option: Option, form: str) -> None:
    assert option.values
    with pytest.raises(InvalidFlag, match=f"{option.name} cannot be") as error:
        parse_flags(form.format(option.name), OLD)
    assert str(error.value).endswith(f"it accepts {', '.join(option.values)}")


def test_wrong_value_names_the_nearest() -> None:
    with pytest.raises(InvalidFlag, match="did you mean 'matmult'"):
        settings("--auto-cast matmultt")
    with pytest.raises(InvalidFlag, match="did you mean 'fp8_e4m3'"):
        settings("--auto-cast-type fp8_e4m3fn")


def test_a_following_option_is_not_taken_for_a_value() -> None:
    with pytest.raises(InvalidFlag, match="--auto-cast "):
        settings("--auto-cast --auto-cast-type bf16")


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.values is not None], ids=lambda o: o.name)
def test_missing_value(option: Option) -> None:
    for name in filter(None, (option.name, option.short)):
        with pytest.raises(InvalidFlag, match=f"{option.name} needs a value"):
            parse_flags(name, OLD)


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.values is None], ids=lambda o: o.name)
def test_bare_flag_takes_no_value(option: Option) -> None:
    for form in (f"{option.name}=true", f"{option.name}="):
        with pytest.raises(InvalidFlag, match="takes no value"):
            parse_flags(form, OLD)


@pytest.mark.parametrize("flags", [f"{ENABLE} {DISABLE}", f"{DISABLE} --auto-cast all {ENABLE}"])
def test_enable_and_disable_contradict(flags: str) -> None:
    with pytest.raises(InvalidFlag, match=f"{ENABLE} and {DISABLE} contradict"):
        parse_flags(flags, OLD)


@pytest.mark.parametrize(
    "flags",
    [
        "--fast-math=fast-relayout",
        "--fp32-cast matmult-bf16",
        "--neuroncore-pipeline-cores 4",
        "--io-config={}",
    ],
)
def test_neuron_cc_flags_say_whose_they_are(flags: str) -> None:
    with pytest.raises(InvalidFlag, match=r"option of neuron-cc \(Inf1\).*--auto-cast"):
        parse_flags(flags, OLD)


@pytest.mark.parametrize(
    "flags",
    ["--enable-saturate-infinity", "--native-int64=enabled", "--implicit-integer-downcast none"],
)
def test_numeric_flags_that_are_not_emulated_are_an_error(flags: str) -> None:
    with pytest.raises(InvalidFlag, match="does not emulate yet"):
        parse_flags(flags, OLD)


@pytest.mark.parametrize("flags", ["compile", "model.hlo.pb --auto-cast all", "--auto-cast all bf16"])
def test_words_that_are_no_options(flags: str) -> None:
    with pytest.raises(InvalidFlag, match="is not an option"):
        parse_flags(flags, OLD)


@pytest.mark.parametrize("release", [OLD, NEW], ids=["2.26", "2.27"])
@pytest.mark.parametrize("cast_type", CAST_TYPES)
@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
def test_flag_line_parses_back(auto_cast: str, cast_type: str, release: Release) -> None:
    given = settings(f"--auto-cast {auto_cast} --auto-cast-type {cast_type}", release)
    back = settings(given.flag_line, release)
    assert back.flag_line == given.flag_line
    assert back.auto_cast == auto_cast
    assert auto_cast == "none" or back == given  # the type is inert without a cast
