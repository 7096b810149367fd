"""Libraries of the array API standard on neuronsim's arrays: scikit-learn, SciPy, array_api_compat."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import neuronsim as np

pytestmark = pytest.mark.isa_independent

# SciPy reads SCIPY_ARRAY_API when it is imported: a process of its own.
PROGRAM = """
import json, sys
import numpy
import neuronsim as np
import scipy, sklearn
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = x.astype(numpy.float32)
own_x, own_y = np.asarray(x), np.asarray(y)
assert own_x.dtype is np.float32
found = {}

def compare(name, ours, theirs, scale=None):
    assert isinstance(ours, np.Array), (name, type(ours))
    assert ours.dtype is np.float32 or ours.dtype.kind != "float", (name, ours.dtype)
    ours, theirs = numpy.asarray(ours, float), numpy.asarray(theirs, float)
    assert ours.shape == theirs.shape, (name, ours.shape, theirs.shape)
    largest = numpy.abs(theirs).max() if scale is None else scale
    found[name] = float(numpy.abs(ours - theirs).max() / largest)

{body}
json.dump(found, sys.stdout)
"""

SKLEARN = """
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

def fitted(estimator, *data):
    with config_context(array_api_dispatch=True):
        return estimator().fit(*data)

pca = lambda: PCA(n_components=10, svd_solver="full")
ours, theirs = fitted(pca, own_x), pca().fit(x.astype(float))
compare("pca.components_", np.abs(ours.components_), numpy.abs(theirs.components_))
compare("pca.explained_variance_", ours.explained_variance_, theirs.explained_variance_)
with config_context(array_api_dispatch=True):
    scores = theirs.transform(x.astype(float))
    compare("pca.transform", np.abs(ours.transform(own_x)), numpy.abs(scores))
ridge = lambda: Ridge(alpha=1.0, solver="svd")
target = x[:, 20]
rest = numpy.delete(x, 20, axis=1)
ours = fitted(ridge, np.asarray(rest), np.asarray(target))
theirs = ridge().fit(rest.astype(float), target.astype(float))
compare("ridge.coef_", ours.coef_, theirs.coef_)
with config_context(array_api_dispatch=True):
    compare("ridge.predict", ours.predict(np.asarray(rest)), theirs.predict(rest.astype(float)))
lda = lambda: LinearDiscriminantAnalysis(solver="svd")
ours, theirs = fitted(lda, own_x, own_y), lda().fit(x.astype(float), y)
with config_context(array_api_dispatch=True):
    predicted = ours.predict(own_x)
    compare("lda.decision", ours.decision_function(own_x), theirs.decision_function(x.astype(float)))
assert isinstance(predicted, np.Array)
found["lda.predict"] = float((numpy.asarray(predicted) != theirs.predict(x.astype(float))).mean())
"""

SCIPY = """
from scipy import cluster, special, signal, stats, ndimage
sample, other = x[:, 20:24] + 1, x[:, 30:34] + 1
own_sample, own_other = np.asarray(sample), np.asarray(other)
wide, wide_other = sample.astype(float), other.astype(float)
for name in ("gmean", "hmean", "variation", "skew", "kurtosis", "sem", "zscore"):
    f = getattr(stats, name)
    compare("stats." + name, f(own_sample), f(wide))
compare("stats.moment", stats.moment(own_sample, 2), stats.moment(wide, 2))
ours, theirs = stats.ttest_ind(own_sample, own_other), stats.ttest_ind(wide, wide_other)
compare("stats.ttest_ind", ours.statistic, theirs.statistic)
for name in ("logsumexp", "softmax", "log_softmax"):
    f = getattr(special, name)
    compare("special." + name, f(own_sample, axis=0), f(wide, axis=0))
compare("special.expit", special.expit(own_sample), special.expit(wide))
compare("special.xlogy", special.xlogy(own_sample, own_other), special.xlogy(wide, wide_other))
compare("vq.whiten", cluster.vq.whiten(own_sample), cluster.vq.whiten(wide))
"""


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    """By how much each result differs, of one process: the imports take longer than all else."""
    pytest.importorskip("sklearn")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONWARNINGS": "ignore"}
    program = PROGRAM.replace("{body}", SKLEARN + SCIPY)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


ESTIMATORS = ("pca", "ridge", "lda")


def test_scikit_learn_estimators_fit_and_predict_within_float32s_tolerance(
    differences: dict[str, float],
) -> None:
    found = {k: v for k, v in differences.items() if k.startswith(ESTIMATORS)}
    assert len(found) == 7
    # Fitted in float64 by NumPy; float32 has 6e-8, and the digits' columns are correlated.
    assert all(v < 2e-3 for v in found.values()), found  # NaN is not


def test_scipy_functions_that_dispatch_agree(differences: dict[str, float]) -> None:
    found = {k: v for k, v in differences.items() if not k.startswith(ESTIMATORS)}
    assert len(found) == 15
    assert all(v < 1e-4 for v in found.values()), found


def test_array_api_compat_recognises_the_namespace() -> None:
    compat = pytest.importorskip("array_api_compat")
    x = np.asarray([1.0, 2.0])
    assert compat.array_namespace(x, np.asarray([1])) is np
    assert compat.is_array_api_obj(x)
    assert compat.device(x) == x.device
    assert compat.to_device(x, x.device) is x or bool((compat.to_device(x, x.device) == x).all())
    assert compat.size(x) == 2
