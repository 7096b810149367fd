"""The options of neuronx-cc: values, spellings, releases, defaults, and what a wrong one says.

The tables cite AWS's documents by the sections of `reference/neuron.md` that collect them.
"""

from __future__ import annotations

import itertools
import re

import pytest
from tests.support.parameters import each_of

from neuronsim.casting.flags import (
    ALL_INTEGER_DOWNCASTS,
    AUTO_CASTS,
    CAST_TYPES,
    LEVELS,
    OPTIONS,
    CastSettings,
    Flags,
    parse_flags,
    verbosity,
)
from neuronsim.errors import InvalidFlag
from neuronsim.targets import RELEASES, Release, find_release

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

ENABLE, DISABLE = "--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation"
OLD, NEW, LAST = find_release("2.26"), find_release("2.27"), find_release("2.32")
TABLE = OPTIONS["neuronx-cc"]


def settings(flags: str, release: Release = OLD) -> CastSettings:
    return parse_flags(flags, release).settings


def texts(parsed: Flags, level: str) -> list[str]:
    return [m.text for m in parsed.messages if m.level == level]


# ---- neuron.md 1.2: every option with its values -------------------------------------------------

# The rows of the table, with values in the order of the page of v2.32; those that change no value.
SILENT_ROWS = {
    "--framework": ("XLA",),
    "--target": ("inf2", "trn1", "trn1n"),
    "--model-type": ("generic", "transformer", "unet-inference"),
    "--native-int64": ("default", "enabled", "disabled"),
    "--distribution-strategy": ("llm-training", "generic"),
    "--logical-nc-config": ("1",),
    "-lnc": ("1",),
    "--optlevel": ("1", "2", "3"),
    "-O": ("1", "2", "3"),
    "--enable-fast-context-switch": (),
    "--enable-fast-loading-neuron-binaries": (),
    "--logfile": ("log-neuron-cc.txt",),
    "--output": ("file.neff",),
    "--verbose": ("info", "warning", "error", "critical", "debug"),
}
# Below the table: seen in AWS's samples and issues.
UNDOCUMENTED = [
    "--internal-tensorizer-opt-level=2",
    "--pipeline compile SaveTemps",
    "--num-parallel-jobs 8",
    "--disable-dge",
    "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3",
]
SILENT = [(name, value) for name, values in SILENT_ROWS.items() for value in values or (None,)]


@each_of(("name", "value"), SILENT, ids=str)
def test_options_without_numeric_effect_are_taken_and_said_to_have_none(
    name: str, value: str | None
) -> None:
    forms = [[name]] if value is None else [[name, value], [f"{name}={value}"]]
    for words in forms:
        parsed = parse_flags(words, LAST)
        assert parsed.settings == settings("", LAST)
        assert len(parsed.without_effect) == 1
        (said,) = (m.text for m in parsed.messages)
        assert said.startswith(f"{parsed.without_effect[0]} changes no value")
        assert parsed.given == {parsed.without_effect[0]: value or ""}


@pytest.mark.parametrize("flags", UNDOCUMENTED)
def test_undocumented_options_are_taken_and_said_to_be_ignored(flags: str) -> None:
    parsed = parse_flags(flags, OLD)
    assert parsed.settings == settings("")
    (said,) = (m.text for m in parsed.messages)
    assert re.match(f"{re.split('[= ]', flags)[0]} is ignored", said)


def test_options_that_torch_neuronx_takes_out_of_the_variable_are_ignored() -> None:
    parsed = parse_flags("--cache_dir=/tmp/c --retry_failed_compilation", OLD)
    assert parsed.without_effect == ("--cache-dir", "--retry-failed-compilation")


def test_every_option_has_a_row() -> None:
    numeric = {
        *("--auto-cast", "--auto-cast-type", ENABLE, DISABLE),
        *("--enable-saturate-infinity", "--implicit-integer-downcast"),
    }
    undocumented = {re.split("[= ]", f)[0] for f in UNDOCUMENTED}
    others = {"--cache-dir", "--retry-failed-compilation"}  # see above
    removed = {"--neuroncore-pipeline-cores", "--enable-experimental-O1"}  # of earlier releases
    named = {n for n in SILENT_ROWS if n not in ("-O", "-lnc")}
    assert {o.name for o in TABLE} == numeric | undocumented | others | removed | named
    assert {o.name for o in TABLE if o.effect == "values"} == numeric


@each_of("separator", ["=", " "])
def test_auto_cast_and_type_values(separator: str) -> None:
    for value, release in itertools.product(AUTO_CASTS, (OLD, NEW)):
        assert settings(f"--auto-cast{separator}{value}", release).auto_cast == AUTO_CASTS[value]
    for value in CAST_TYPES:
        assert settings(f"--auto-cast-type{separator}{value}").auto_cast_type == value


def test_values_are_those_of_the_guide() -> None:
    assert set(AUTO_CASTS) == {"none", "matmult", "matmul", "all"}
    assert {k: t.name for k, t in CAST_TYPES.items()} == {
        "bf16": "bfloat16",
        "fp16": "float16",
        "tf32": "tfloat32",
        "fp8_e4m3": "float8_e4m3",
    }


@each_of("release", RELEASES, ids=str)
def test_matmul_is_matmult(release: Release) -> None:
    assert settings("--auto-cast matmul", release) == settings("--auto-cast matmult", release)
    assert settings("--auto-cast matmul", release).auto_cast == "matmult"


@pytest.mark.parametrize("release", [NEW, LAST], ids=str)
def test_mixed_precision_accumulation_flags_R3(release: Release) -> None:
    assert settings(ENABLE, release).mixed_precision_accumulation is True
    assert settings(DISABLE, release).mixed_precision_accumulation is False
    assert settings(ENABLE, OLD).mixed_precision_accumulation is True


def test_saturate_infinity_is_a_setting_M8() -> None:
    assert settings("--enable-saturate-infinity").saturate_infinity is True
    assert settings("").saturate_infinity is False


@pytest.mark.parametrize("value", SILENT_ROWS["--native-int64"])
def test_native_int64_says_that_trn1_truncates_C7(value: str) -> None:
    parsed = parse_flags(["--native-int64", value], LAST)
    (said,) = texts(parsed, "warning")
    assert "64-bit integers are truncated to 32 bits whatever it says (C7)" in said


# neuron.md 1.2 and 1.4: default is all; a list names single operations.
@pytest.mark.parametrize(
    ("value", "permitted", "int_dot"),
    [
        ("default", ALL_INTEGER_DOWNCASTS, "exact"),
        ("all", ALL_INTEGER_DOWNCASTS, "exact"),
        ("dot,scatter,all_reduce,reduce_scatter,pow", ALL_INTEGER_DOWNCASTS, "via_float32"),
        ("none", (), "exact"),
        ("dot", ("dot",), "via_float32"),
        ("dot,pow", ("dot", "pow"), "via_float32"),
        ("pow,scatter", ("scatter", "pow"), "exact"),
        ("reduce_scatter,all_reduce", ("all_reduce", "reduce_scatter"), "exact"),
    ],
)
def test_implicit_integer_downcast_values_M7(
    value: str, permitted: tuple[str, ...], int_dot: str
) -> None:
    found = settings(f"--implicit-integer-downcast {value}", LAST)
    assert (found.integer_downcast, found.int_dot) == (permitted, int_dot)


# ---- neuron.md 1.3: what a release has -----------------------------------------------------------

# Flags and the first SDK that has them; release notes of the compiler unless said otherwise.
SINCE = [
    ("--target inf2", "2.8"),
    ("--enable-experimental-O1", "2.7"),  # notes of 02/08/2023
    ("--target trn1n", "2.9"),
    ("--auto-cast-type fp8_e4m3", "2.9"),
    ("--model-type unet-inference", "2.10"),
    ("--distribution-strategy FSDP", "2.10"),  # pages of v2.10 and v2.11
    ("--enable-saturate-infinity", "2.11"),
    ("--distribution-strategy NEMO", "2.12"),
    ("--distribution_strategy=nemo", "2.12"),
    ("--optlevel 1", "2.14"),
    ("-O1", "2.14"),
    ("--distribution-strategy llm-training", "2.15"),
    ("--enable-mixed-precision-accumulation", "2.18"),
    ("-lnc 1", "2.21"),
    ("--logical-nc-config=1", "2.21"),
    ("--lnc 1", "2.21"),
    ("--disable-mixed-precision-accumulation", "2.27"),
    ("--native-int64 enabled", "2.32"),
    ("--implicit-integer-downcast none", "2.32"),
]


@each_of(("flags", "since"), SINCE)
def test_a_release_refuses_what_came_later_and_names_the_release_that_has_it(
    flags: str, since: str
) -> None:
    first = next(n for n, r in enumerate(RELEASES) if r.sdk == since)
    parse_flags(flags, RELEASES[first])
    before = RELEASES[first - 1]
    with pytest.raises(InvalidFlag) as error:
        parse_flags(flags, before)
    assert f"{before} does not have --" in str(error.value)
    assert f"the first that has it is {RELEASES[first]}" in str(error.value)


# Pages of v2.3 to v2.6 have it, those from v2.7 on have not; FSDP is on those of v2.10 and v2.11.
@pytest.mark.parametrize(
    ("flags", "until"),
    [("--neuroncore-pipeline-cores 4", "2.7"), ("--distribution-strategy FSDP", "2.12")],
)
def test_a_release_refuses_what_was_dropped(flags: str, until: str) -> None:
    last = next(n for n, r in enumerate(RELEASES) if r.sdk == until) - 1
    assert len(parse_flags(flags, RELEASES[last]).without_effect) == 1
    with pytest.raises(InvalidFlag, match=f"SDK {until}, .* dropped it"):
        parse_flags(flags, RELEASES[last + 1])


# neuron.md 1.3 and 2.3: SDK by SDK, matmult and off to 2.26, none and on from 2.27.
DEFAULTS = {r.sdk: ("none", True) if int(r.sdk[2:]) >= 27 else ("matmult", False) for r in RELEASES}


@each_of(("sdk", "expected"), DEFAULTS.items())
@each_of("flags", ["", "   ", []])
def test_release_defaults(sdk: str, expected: tuple[str, bool], flags: str | list[str]) -> None:
    parsed = parse_flags(flags, find_release(sdk))
    assert parsed.settings == CastSettings(expected[0], "bf16", expected[1])  # type: ignore[arg-type]
    assert (parsed.without_effect, parsed.messages) == ((), ())


def test_an_option_changes_only_its_own_default() -> None:
    assert settings("--auto-cast-type fp16", NEW) == CastSettings("none", "fp16", True)
    assert settings("--auto-cast all", OLD) == CastSettings("all", "bf16", False)


def test_experimental_O1_is_deprecated_from_2_14() -> None:
    before, after = (parse_flags("--enable-experimental-O1", find_release(v)) for v in ("2.13", "2.14"))
    assert texts(before, "warning") == []
    assert texts(after, "warning") == ["--enable-experimental-O1 is deprecated: use --optlevel 1 (-O1)"]


# ---- right-most wins (neuron.md 1.1) -------------------------------------------------------------


def test_right_most_wins_across_spellings() -> None:
    flags = "--auto-cast=all --auto-cast-type bf16 --auto-cast none --auto_cast_type=tf32"
    assert settings(flags) == CastSettings("none", "tf32", False)


@pytest.mark.parametrize(
    ("flags", "on"),
    [
        (f"{ENABLE} {DISABLE}", False),
        (f"{DISABLE} --auto-cast all {ENABLE}", True),
        (f"{ENABLE} {DISABLE} {ENABLE}", True),
        (f"{DISABLE} {ENABLE} {DISABLE}", False),
    ],
)
def test_right_most_of_enable_and_disable_wins(flags: str, on: bool) -> None:
    for release in (NEW, LAST):
        assert settings(flags, release).mixed_precision_accumulation is on


def test_numeric_options_are_not_reported_as_silent_and_repeats_once() -> None:
    flags = f"--verbose info --auto-cast all -O1 {ENABLE} --optlevel 3 --verbose=debug"
    parsed = parse_flags(flags, OLD)
    assert parsed.without_effect == ("--verbose", "--optlevel")
    assert (parsed.given["--optlevel"], parsed.given["--verbose"]) == ("3", "debug")


# ---- spellings -----------------------------------------------------------------------------------


@each_of(
    ("option", "value", "spellings"),
    [
        ("--optlevel", "2", ["-O2", "-O 2", "-O=2", "--optlevel 2", "--optlevel=2"]),
        (
            *("--logical-nc-config", "1"),
            ["-lnc 1", "-lnc=1", "--lnc 1", "--lnc=1", "--logical_nc_config 1"],
        ),
    ],
)
def test_spellings_of_levels_and_logical_cores(option: str, value: str, spellings: list[str]) -> None:
    for flags in spellings:
        assert parse_flags(flags, OLD).given == {option: value}


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("", 30),
        *((f"--verbose {name}", number) for name, number in LEVELS.items()),
        ("--verbose=35", 35),
        ("--verbose 0", 0),
        ("--verbose debug --verbose=50", 50),
    ],
)
def test_verbosity_by_name_and_number(flags: str, level: int) -> None:
    assert verbosity(parse_flags(flags, OLD).given) == level


def test_quoted_words_are_one_word() -> None:
    flags = "--logfile='a log.txt' \"--auto-cast\" 'all'"
    assert parse_flags(flags, OLD).given["--logfile"] == "a log.txt"
    assert settings(flags).auto_cast == "all"


def test_a_list_is_not_split_again_nor_consumed() -> None:
    words = ["--logfile", "it's a log"]
    assert parse_flags(words, OLD).given == {"--logfile": "it's a log"}
    assert words == ["--logfile", "it's a log"]


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("--auto-casts", "--auto-cast"),
        ("--autocast-type=bf16", "--auto-cast-type"),
        ("--enable-mixed-precision-acumulation", ENABLE),
        ("--opt-level", "--optlevel"),
    ],
)
def test_unknown_flag_names_the_nearest_or_all_others(flag: str, near: str) -> None:
    with pytest.raises(InvalidFlag, match=f"unknown flag {flag.partition('=')[0]}.*'{near}'") as error:
        parse_flags(flag, OLD)
    assert str(error.value).endswith(f"(did you mean '{near}'?)")
    with pytest.raises(InvalidFlag) as error:
        parse_flags("--zzz", OLD)
    assert all(o.name in str(error.value) for o in TABLE)


WITH_VALUES = [o for o in TABLE if o.values is not None]


@each_of("option", [o for o in WITH_VALUES if not o.text], ids=lambda o: o.name)
@each_of("form", ["{0}=wrong", "{0} wrong", "{0}="])
def test_wrong_value_lists_the_accepted_ones(option: object, form: str) -> None:
    name, accepted = option.name, option.accepted  # type: ignore[attr-defined]
    release = find_release(option.since)  # type: ignore[attr-defined]
    with pytest.raises(InvalidFlag, match=f"{name} cannot be") as error:
        parse_flags(form.format(name), release)
    assert str(error.value).endswith(f"it accepts {accepted}")


def test_all_problems_of_a_line_are_listed_at_once() -> None:
    line = "--auto-kast all -O4 --auto-cast-type --native-int64 enabled --enable-saturate-infinity=1 x"
    with pytest.raises(InvalidFlag) as error:
        parse_flags(line, OLD)
    assert len(str(error.value).split("; ")) == 6
    for part in (
        "unknown flag --auto-kast",
        "--optlevel cannot be '4'",
        "--auto-cast-type needs a value, not '--native-int64'",
        "does not have --native-int64",
        "--enable-saturate-infinity takes no value",
        "'x' is not an option",
    ):
        assert part in str(error.value)
    assert "'all'" not in str(error.value)  # the value of what is unknown


@pytest.mark.parametrize(
    "command", ["neuronx-cc compile model.hlo", "compile model.hlo.pb", "neuron-cc compile", "compile"]
)
def test_a_compilers_command_before_its_options_is_refused_once(command: str) -> None:
    with pytest.raises(InvalidFlag) as error:
        parse_flags(f"{command} --auto-cast al", OLD)
    assert str(error.value) == (
        f"'{command}' is not an option but a command: give the options that follow it"
    )


def test_a_type_without_casts_is_said_to_be_inert() -> None:
    text = "--auto-cast-type fp16 has no effect: --auto-cast none casts nothing"
    assert texts(parse_flags("--auto-cast none --auto-cast-type fp16", OLD), "warning") == [text]
    by_default = parse_flags("--auto-cast-type fp16", NEW)
    assert texts(by_default, "warning") == [f"{text}, and is the default"]
    for flags in ("--auto-cast none", "--auto-cast all --auto-cast-type fp16", "--auto-cast-type fp16"):
        assert parse_flags(flags, OLD).messages == ()


@each_of("option", WITH_VALUES, ids=lambda o: o.name)
def test_missing_value(option: object) -> None:
    release = find_release(option.since)  # type: ignore[attr-defined]
    for name in (option.name, *option.short):  # type: ignore[attr-defined]
        with pytest.raises(InvalidFlag, match="needs a value: it accepts "):
            parse_flags(name, release)


@pytest.mark.parametrize("option", [o for o in TABLE if o.values is None], ids=lambda o: o.name)
def test_bare_flag_takes_no_value(option: object) -> None:
    name, release = option.name, find_release(option.since)  # type: ignore[attr-defined]
    for form in (f"{name}=true", f"{name}="):
        with pytest.raises(InvalidFlag, match="takes no value"):
            parse_flags(form, release)


# What is refused, in words of a release that has it, and why.
REFUSED: list[tuple[str, Release, str]] = [
    # Values, with those that there are or the nearest.
    *(
        (f"--implicit-integer-downcast={value}", LAST, "dot, scatter, all_reduce, reduce_scatter, pow")
        for value in ("dots", "dot,", "dot,all", "dot;pow", ",", "DOT", "all-reduce")
    ),
    *(
        (flags, OLD, r"--optlevel cannot be .*: it accepts 1, 2, 3")
        for flags in ("-O4", "-O 0", "-Ofast", "--optlevel=9", "-O2=2", "-O12")
    ),
    *(
        (f"--verbose={value}", OLD, "a number from 0 to 50")
        for value in ("51", "-1", "1e1", "INFO", "٣")
    ),
    ("--auto-cast matmultt", OLD, "did you mean 'matmult'"),
    ("--auto-cast-type fp8_e4m3fn", OLD, "did you mean 'fp8_e4m3'"),
    ("--implicit-integer-downcast scater", LAST, "did you mean 'scatter'"),
    ("--implicit-integer-downcast dot,pw", LAST, "did you mean 'pow'"),
    ("--auto-cast ALL", OLD, "did you mean 'all'"),
    # What neuronx-cc has and neuronsim has not.
    ("--target trn2", OLD, "NeuronCore-v3, and neuronsim emulates NeuronCore-v2"),
    ("--target inf1", OLD, "its compiler is neuron-cc.*--fast-math"),
    ("-lnc 2", OLD, r"NCC_EARG001.*accepts 1"),
    ("--logical-nc-config=2", OLD, r"NCC_EARG001.*accepts 1"),
    # What neuron-cc has, which says whose it is.
    *(
        (flags, OLD, r"option of neuron-cc \(Inf1\).*--auto-cast")
        for flags in (
            *("--fast-math=fast-relayout", "--fp32-cast matmult-bf16", "--io-config={}"),
            "--fast_math none",
        )
    ),
    # Words that are no options, and quotes that do not end.
    *((f, OLD, "is not an option") for f in ("model.hlo.pb --auto-cast all", "--auto-cast all bf16")),
    *(
        (flags, OLD, "cannot be split into words")
        for flags in ("--logfile 'x", '--auto-cast "all', "--auto-cast all\\")
    ),
]


@each_of(("flags", "release", "why"), REFUSED, ids=str)
def test_wrong_values_and_words_are_refused_with_the_reason(
    flags: str, release: Release, why: str
) -> None:
    with pytest.raises(InvalidFlag, match=why):
        parse_flags(flags, release)


@pytest.mark.parametrize("flags", ["--auto-cast all --fast-math none", "--fp32-cast=all -O2"])
def test_flags_of_both_compilers_in_one_line_are_refused(flags: str) -> None:
    for compiler in ("neuronx-cc", "neuron-cc"):
        with pytest.raises(InvalidFlag, match="one line has flags of both compilers: --"):
            parse_flags(flags, OLD, compiler)  # type: ignore[arg-type]


# ---- flag_line -----------------------------------------------------------------------------------


def every_setting() -> list[CastSettings]:
    names = ALL_INTEGER_DOWNCASTS
    lists = [c for n in range(len(names) + 1) for c in itertools.combinations(names, n)]
    integers = [(c, "via_float32" if "dot" in c else "exact") for c in lists] + [(names, "exact")]
    return [
        CastSettings(cast, t, accumulation, "neuronx-cc", "", saturate, permitted, int_dot, True)  # type: ignore[arg-type]
        for cast in ("none", "matmult", "all")
        for t in CAST_TYPES
        for accumulation in (False, True)
        for saturate in (False, True)
        for permitted, int_dot in integers
    ]


def test_flag_line_gives_every_setting_back() -> None:
    everything = every_setting()
    assert len({s.flag_line for s in everything}) == len(everything) == 3 * 4 * 2 * 2 * 33
    for s in everything:
        assert settings(s.flag_line, LAST) == s


@each_of("release", RELEASES, ids=str)
def test_flag_line_gives_back_what_a_release_can_set(release: Release) -> None:
    sdk = int(release.sdk[2:])
    accumulations = ["", *([ENABLE] if sdk >= 18 else []), *([DISABLE] if sdk >= 27 else [])]
    for flags in accumulations:
        for cast in ("", "--auto-cast none", "--auto-cast all --auto-cast-type tf32"):
            given = settings(f"{flags} {cast}", release)
            back = settings(given.flag_line, release)
            assert back == given
            assert back.flag_line == given.flag_line


def test_flag_line_is_short_where_nothing_else_was_given() -> None:
    assert settings("--auto-cast none").flag_line == "--auto-cast none"
    assert settings("", NEW).flag_line == "--auto-cast none"
    assert settings("").flag_line == "--auto-cast matmult --auto-cast-type bf16"
