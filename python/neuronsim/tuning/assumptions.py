"""What the cost model assumes, and where that stands; docs/cost-model.md has it in the same words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumption:
    """One assumption: its subject, what is assumed, its source; `documented` tells what AWS says from
    what the model adds because nothing is said.
    """

    subject: str
    text: str
    source: str
    documented: bool


_NKI = "AWS, NKI documentation of SDK 2.25, estimated instruction cost of nki.isa"
_ARCHITECTURE = "AWS, NKI architecture guide of Trainium and Inferentia2"
_CHIPS = "AWS, Neuron hardware pages"
_OURS = "not documented: the model's choice"

ASSUMPTIONS = (
    Assumption(
        "cycles",
        "Each instruction takes its documented cycles on N elements of a partition, and 100 cycles "
        "once; no instruction takes less than MIN_II, 64 cycles.",
        _NKI,
        documented=True,
    ),
    Assumption(
        "clocks",
        "Trn1, Trn1n and Inf2: tensor 2.8 GHz, vector 1.12 GHz, scalar and GpSimd 1.4 GHz; the "
        "array of 128 x 128 then has 91.75 TFLOPS in bfloat16, float16, tfloat32 and float8, a "
        "quarter of that in float32, whose products take four times the cycles.",
        _ARCHITECTURE,
        documented=True,
    ),
    Assumption(
        "tiles",
        "A product is cut into tiles of at most 128 stationary and 512 moving columns and a depth "
        "of 128; either operand may be the stationary one, whichever takes fewer cycles. The tiles "
        "of an instruction follow back to back.",
        _NKI,
        documented=True,
    ),
    Assumption(
        "layout",
        "The elements of every array fill all 128 partitions evenly, and no layout is changed but "
        "by the model's own movements.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "PSUM",
        "Products leave float32 sums in PSUM. If one instruction of the vector or scalar engine "
        "alone reads them, it reads them there, at one element a cycle; else the scalar engine "
        "copies them to SBUF.",
        _NKI,
        documented=True,
    ),
    Assumption(
        "casts",
        "Engines and DMAs cast without overhead as they write, engines as they read too: a cast is "
        "free where its operand is stored in that type alone, or where engines alone read its wider "
        "result. Each further type in which a value is read is a copy of the vector engine, and so is "
        "the cast of what GpSimd gives.",
        _ARCHITECTURE,
        documented=True,
    ),
    Assumption(
        "INT8",
        "The pages of Trainium and Inferentia list twice as many INT8 products as of bfloat16; no "
        "compiler makes them, so that a target prices them as products of bfloat16, which holds every "
        "byte, and the one whose name ends in +int8 by the table. What quantizes an array is one "
        "instruction of the scalar engine, func(x * scale + bias), which rounds and saturates as it "
        "writes; what scales a product's sums, and adds its bias, is such an instruction too, or the "
        "scale of the function that alone reads them.",
        _CHIPS + "; the instructions are the model's choice",
        documented=False,
    ),
    Assumption(
        "constants",
        "What constants alone decide is computed, cast and laid out once, before the run.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "movement",
        "Transposes, concatenations, pads, gathers and updates are DMAs that read and write device "
        "memory at its bandwidth; slices, reshapes and broadcasts are access patterns and free. The "
        "1.3 us of latency of a DMA is assumed hidden by others.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "memory",
        "Weights, inputs and results cross the device memory's bandwidth once in a run, beside the "
        "engines' work: the core's half of 820 GiB/s on Trn1 and Inf2, a quarter of 50 GiB/s on "
        "Inf1.",
        _CHIPS,
        documented=True,
    ),
    Assumption(
        "SBUF",
        "24 MiB hold the values that are needed again; what does not fit is written to device "
        "memory and read again, what is needed last first. What one instruction of an engine alone "
        "reads is passed on tile by tile. Weights that a loop's trip reads and that do not fit are "
        "read in every trip.",
        _ARCHITECTURE + "; the policy is the model's choice",
        documented=False,
    ),
    Assumption(
        "overlap",
        "The estimate lets one engine work at a time, and the memory beside it: an upper bound. "
        "With perfect overlap the busiest engine or the memory decides (the roofline), a lower "
        "bound; the timeline, in which an instruction waits for its operands, lies between. All "
        "three are printed.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "composites",
        "Softmax, norms and their gradients take the steps of their formulas (R7), computations "
        "that reduce, sort, map and scatter apply take each of their operations; divisions are a "
        "reciprocal and a product.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "loops",
        "A loop takes its trips, what no trip changes runs once before it, counters are free; of a "
        "conditional the dearest branch runs.",
        _OURS,
        documented=False,
    ),
    Assumption(
        "Inf1",
        "NeuronCore-v1 has published rates but no clocks: 16 TFLOPS for products of 16-bit types; "
        "the other engines have NeuronCore-v2's rates divided by the speed-ups that AWS gives it "
        "over v1 (3 scalar, 10 vector). Instructions take no fixed time, and the size of its memory "
        "on the chip is not known. Estimates for it rank settings, no more.",
        _CHIPS,
        documented=False,
    ),
    Assumption(
        "left out",
        "Fusion beyond what is said here, scheduling, instruction fetch, links between devices: a "
        "collective is a copy, or the reduction of this core's arrays.",
        _OURS,
        documented=False,
    ),
)
