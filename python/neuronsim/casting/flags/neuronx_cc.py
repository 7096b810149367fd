"""The options of `neuronx-cc compile` (Trainium), by release.

Facts: `reference/neuron.md` 1.2 (options and values) and 1.3 (the release that brought or dropped each)
in the project's research notes, from AWS's command line reference and release notes.
"""

from __future__ import annotations

from neuronsim.casting.flags.integer_downcast import INTEGER_DOWNCASTS
from neuronsim.casting.flags.options import Option

OPTIONS = (
    # matmul is the spelling of the pages of SDK 2.3 and of the notes of 2.27.
    Option("--auto-cast", ("none", "matmult", "matmul", "all"), "values"),
    Option(
        "--auto-cast-type", ("bf16", "fp16", "tf32", "fp8_e4m3"), "values", later={"fp8_e4m3": "2.9"}
    ),
    Option("--enable-mixed-precision-accumulation", effect="values", since="2.18"),
    Option("--disable-mixed-precision-accumulation", effect="values", since="2.27"),
    Option("--enable-saturate-infinity", effect="values", since="2.11"),
    Option(
        "--native-int64",
        ("default", "enabled", "disabled"),
        since="2.32",
        note="on NeuronCore-v2 64-bit integers are truncated to 32 bits whatever it says (C7)",
    ),
    Option(
        "--implicit-integer-downcast",
        ("default", "all", "none"),
        "values",
        members=tuple(INTEGER_DOWNCASTS),
        since="2.32",
    ),
    Option("--framework", ("XLA",)),
    Option(
        "--target",
        ("trn1", "trn1n", "inf2"),
        later={"inf2": "2.8", "trn1n": "2.9"},
        refused={
            "trn2": "it has NeuronCore-v3, and neuronsim emulates NeuronCore-v2",
            "inf1": "its compiler is neuron-cc; compile for the target inf1, with --fast-math",
        },
    ),
    Option(
        "--model-type", ("generic", "transformer", "unet-inference"), later={"unet-inference": "2.10"}
    ),
    Option(
        "--distribution-strategy",
        ("generic", "llm-training", "NEMO", "nemo", "FSDP"),
        since="2.10",
        later={"NEMO": "2.12", "nemo": "2.12", "llm-training": "2.15"},
        dropped={"FSDP": "2.12"},
    ),
    Option(
        "--logical-nc-config",
        ("1",),
        short=("-lnc", "--lnc"),
        refused={"2": "two cores as one are for trn2 only [NCC_EARG001]"},
        since="2.21",
    ),
    Option("--optlevel", ("1", "2", "3"), short=("-O",), since="2.14"),
    Option(
        "--enable-experimental-O1",
        since="2.7",
        deprecated="2.14",
        instead="use --optlevel 1 (-O1)",
    ),
    Option("--enable-fast-context-switch"),
    Option("--enable-fast-loading-neuron-binaries"),
    Option("--neuroncore-pipeline-cores", (), numbers=range(1, 65), until="2.7"),
    Option("--logfile", (), text="a path"),
    Option("--output", (), text="a path"),
    Option(
        "--verbose",
        ("debug", "info", "warning", "error", "critical"),
        numbers=range(51),  # torch-neuronx gives 35
    ),
    # Seen in AWS's samples and issues (neuron.md 1.2, below the table).
    Option("--internal-tensorizer-opt-level", (), "ignored", numbers=range(10)),
    Option("--pipeline", (), "ignored", text="names of stages", several=True),
    Option("--num-parallel-jobs", (), "ignored", numbers=range(1, 1025)),
    Option("--disable-dge", effect="ignored"),
    # torch-neuronx takes these out of NEURON_CC_FLAGS (its guide to the compile cache).
    Option("--cache-dir", (), "ignored", text="a path"),
    Option("--retry-failed-compilation", effect="ignored"),
    Option(
        "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3",
        effect="ignored",
        note="neuronsim does not read float8_e4m3fn as float8_e4m3 (NCC_EVRF051)",
    ),
)
