"""How far outputs are from float32's, and how often they are right.

Sums are exact (`math.fsum`), so that no order of addition shows in a figure.

>>> reference = np.array([[0.0, 1.0], [2.0, 1.0]])
>>> error_metrics(reference + [[0.0, 0.5], [0.0, 0.0]], reference)["max_error"]
0.5
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.float64] | npt.NDArray[np.complex128]


def share_differing(outputs: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    """The share of the elements that are not equal, of integers and truth values."""
    return float(np.count_nonzero(outputs != reference) / reference.size) if reference.size else 0.0


def error_metrics(outputs: Values, reference: Values) -> dict[str, Any]:
    """Relative Frobenius and maximum error and the number of values that are not finite, of one output.

    An output that is not finite where the reference is makes both errors infinite; so does any value
    but the same where the reference is not. The relative error of other values than zeros is infinite
    where all of the reference's are zero.
    """
    not_finite = int(np.count_nonzero(~np.isfinite(outputs)))
    same = (outputs == reference) | (np.isnan(outputs) & np.isnan(reference))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, outputs - reference)
    if not np.all(np.isfinite(difference)):
        return {"relative_error": math.inf, "max_error": math.inf, "not_finite": not_finite}
    finite = reference[np.isfinite(reference)]
    scale = _norm(finite)
    distance = _norm(difference)
    return {
        "relative_error": distance / scale if scale else (0.0 if distance == 0 else math.inf),
        "max_error": float(np.max(np.abs(difference), initial=0.0)),
        "not_finite": not_finite,
    }


def _norm(x: Values) -> float:
    """The Frobenius norm, scaled so that squares neither overflow nor vanish."""
    size = np.abs(x)
    top = float(np.max(size, initial=0.0))
    return top * math.sqrt(math.fsum(np.square(size / top).ravel().tolist())) if top else 0.0


def predictions(outputs: Floats) -> npt.NDArray[np.int64]:
    """The top class of each sample, -1 where an output is NaN: such a sample is never right."""
    flat = outputs.reshape(len(outputs), -1)
    return np.where(np.isnan(flat).any(axis=1), -1, np.argmax(flat, axis=1))


def top1(outputs: Floats, labels: npt.NDArray[np.int64]) -> float:
    """The share of samples whose top class is the label."""
    found = predictions(outputs)
    return float(np.count_nonzero((found == labels) & (found >= 0)) / len(labels))
