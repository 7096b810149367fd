"""Classical models (ai.onnx.ml): traced as eager; by ONNX's own evaluator, a forest by a walk down each
tree, and, where ONNX's evaluator ends classifiers in another way, as onnxruntime does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import Case, check, check_traced_as_eager, expected, floats, ints, run
from tests.frontends.onnx_coverage import uncovered

from neuronsim.errors import InvalidModel, UnsupportedOperator
from neuronsim.frontends.onnx.operators import classifiers, features, trees

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent

NAN = float("nan")
X = floats(7, 4)
HOLES = np.where(floats(7, 4, seed=1) > 0.8, np.float32(NAN), X)
NUMBERS = np.random.default_rng(2).integers(-2, 4, (6, 3))


def learned(op_type: str, *inputs: Any, version: int = 3, outputs: int = 1, **attributes: Any) -> Case:
    return Case(
        op_type,
        list(inputs),
        attributes=attributes,
        version=version,
        outputs=outputs,
        domain="ai.onnx.ml",
    )


# ---- features ----------------------------------------------------------------------------------------

FEATURES = [
    learned("ArrayFeatureExtractor", X, ints(2, 0, 0)),
    learned("ArrayFeatureExtractor", NUMBERS, ints(1)),
    learned("Binarizer", X, threshold=0.25),
    learned("Binarizer", X),
    learned("FeatureVectorizer", X, HOLES[:, :2], inputdimensions=[4, 2]),
    learned("Imputer", HOLES, imputed_value_floats=[0.5], replaced_value_float=NAN),
    learned("Imputer", HOLES, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=NAN),
    learned("Imputer", NUMBERS, imputed_value_int64s=[7], replaced_value_int64=-1),
    learned("Normalizer", np.abs(X), norm="MAX"),
    learned("Normalizer", X, norm="L1"),
    learned("Normalizer", X, norm="L2"),
    learned("Scaler", X, offset=[0.5], scale=[2.0]),
    learned("Scaler", X[:, :3], offset=[0.5, 1.0, 2.0], scale=[2.0, 0.1, -1.0]),
    learned("OneHotEncoder", NUMBERS[:, 0], cats_int64s=[3, -1, 0], zeros=1),
    learned("LabelEncoder", NUMBERS, keys_int64s=[3, -1, 0], values_int64s=[10, 20, 30]),
    learned("LabelEncoder", NUMBERS, keys_int64s=[3, -1], values_floats=[0.5, 2.5], default_float=-2.0),
    learned(
        "LabelEncoder",
        NUMBERS,
        version=4,
        keys_tensor=onnx.numpy_helper.from_array(ints(1, 2)),
        values_tensor=onnx.numpy_helper.from_array(np.array([0.25, 0.75])),
        default_tensor=onnx.numpy_helper.from_array(np.array([-1.0])),
    ),
]


@pytest.mark.parametrize("case", FEATURES, ids=str)
def test_features_are_those_of_onnx(case: Case) -> None:
    check(case)


def test_a_norm_of_nothing_leaves_it() -> None:
    for norm in ("MAX", "L1", "L2"):
        (found,) = run(learned("Normalizer", np.zeros((2, 3), np.float32), norm=norm))
        assert not found.any()


def test_integers_become_float32() -> None:
    given = {"coefficients": [1.0, 0.5, -2.0], "intercepts": [0.25]}
    for case in (
        learned("Scaler", NUMBERS, offset=[0.5], scale=[2.0]),
        learned("LinearRegressor", NUMBERS, **given),
        learned("Normalizer", NUMBERS, norm="L1"),
    ):
        narrow = Case(
            case.op_type,
            [NUMBERS.astype(np.float32)],
            attributes=case.attributes,
            version=3,
            domain="ai.onnx.ml",
        )
        (found,), (wanted,) = run(case), run(narrow)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wanted)


def test_places_that_are_computed() -> None:
    case = Case("ArrayFeatureExtractor", [X, ints(3, 1)], traced=2, version=3, domain="ai.onnx.ml")
    np.testing.assert_array_equal(run(case)[0], X[:, [3, 1]])


def test_nan_is_a_label() -> None:
    labels = np.array([NAN, 1, 2], np.float32)
    case = learned(
        "LabelEncoder", labels, keys_floats=[1.0, NAN], values_int64s=[4, 5], default_int64=6
    )
    assert run(case)[0].tolist() == [5, 4, 6]


def test_what_ends_in_maps_is_the_columns() -> None:
    (found,) = run(learned("ZipMap", X, classlabels_int64s=[0, 1, 2, 3]))
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize(
    "case",
    [
        learned("OneHotEncoder", NUMBERS, cats_strings=["a"]),
        learned("LabelEncoder", NUMBERS, keys_int64s=[1], values_strings=["a"]),
        learned("LinearRegressor", X, coefficients=[1.0] * 4, post_transform="PROBIT"),
    ],
    ids=str,
)
def test_refused(case: Case) -> None:
    with pytest.raises(UnsupportedOperator):
        run(case)


# ---- linear models and support vector machines -------------------------------------------------------

WEIGHTS = floats(12, seed=3).tolist()
VECTORS = floats(9, 4, seed=4)


def machine(kernel: str, *, params: Any = (0.3, 0.5, 2.0), **attributes: Any) -> Case:
    """A classifier of three classes of 2, 4 and 3 support vectors."""
    return learned(
        "SVMClassifier", X, outputs=2, classlabels_ints=[4, 7, 9], vectors_per_class=[2, 4, 3],
        kernel_type=kernel, kernel_params=list(params), support_vectors=VECTORS.reshape(-1).tolist(),
        coefficients=floats(18, seed=5).tolist(), rho=[0.1, -0.2, 0.3], **attributes,
    )  # fmt: skip


def machine_of_two(**attributes: Any) -> Case:
    coefficients = [0.7, -0.2, 0.4, -0.5, 0.3]
    return learned(
        "SVMClassifier", X, outputs=2, classlabels_ints=[3, 5], vectors_per_class=[2, 3],
        kernel_type="RBF", kernel_params=[0.3, 0.0, 3.0], coefficients=coefficients, rho=[0.05],
        support_vectors=VECTORS[:5].reshape(-1).tolist(), **attributes,
    )  # fmt: skip


def regressor(kernel: str, **attributes: Any) -> Case:
    return learned(
        "SVMRegressor", X, n_supports=9, kernel_type=kernel, kernel_params=[0.3, 0.5, 2.0],
        support_vectors=VECTORS.reshape(-1).tolist(), coefficients=floats(9, seed=6).tolist(),
        rho=[0.25], **attributes,
    )  # fmt: skip


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
LINEAR = [
    learned(
        "LinearRegressor", X, coefficients=WEIGHTS, intercepts=[0.5, -1.0, 2.0], targets=3
    ),
    learned("LinearRegressor", X, coefficients=WEIGHTS[:4], intercepts=[0.5]),
    *(
        learned(
            "LinearClassifier", X, outputs=2, coefficients=WEIGHTS, intercepts=[0.5, -1.0, 2.0],
            classlabels_ints=[4, 2, 7], post_transform=transform,
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    ),
    learned(
        "LinearClassifier", X, outputs=2, coefficients=WEIGHTS[:4], intercepts=[0.5],
        classlabels_ints=[4, 2], post_transform="LOGISTIC",
    ),
    learned("SVMRegressor", X, kernel_type="LINEAR", coefficients=WEIGHTS[:4], rho=[0.5]),
    *map(regressor, KERNELS),
    regressor("RBF", one_class=1),
    *map(machine, KERNELS),
    machine_of_two(),
    machine_of_two(prob_a=[-1.5], prob_b=[0.2]),
]  # fmt: skip


@pytest.mark.parametrize("case", LINEAR, ids=range(len(LINEAR)))
def test_scores_are_those_of_onnx(case: Case) -> None:
    check(case)


def test_labels_that_are_texts_are_their_numbers() -> None:
    given = {"coefficients": WEIGHTS, "intercepts": [0.5, -1.0, 2.0]}
    texts = learned("LinearClassifier", X, outputs=2, classlabels_strings=["a", "b", "c"], **given)
    numbers = learned("LinearClassifier", X, outputs=2, classlabels_ints=[0, 1, 2], **given)
    for found, wanted in zip(run(texts), run(numbers), strict=True):
        np.testing.assert_array_equal(found, wanted)


# ---- trees -------------------------------------------------------------------------------------------

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
ROUND = np.round(HOLES * 2) / 2  # values that thresholds are equal to


def grown(
    modes: tuple[str, ...] = MODES[:1], count: int = 5, depth: int = 4, *, ordered: bool = False
) -> dict[str, list[Any]]:
    """The nodes of random trees: in no order, or as exporters write them, each tree from its first node
    on and the branch of what is true first.
    """
    rng = np.random.default_rng(8)
    rows: list[tuple[Any, ...]] = []
    for tree in range(count):
        most = 2 ** (depth + 2)
        numbers = iter(range(most) if ordered else rng.permutation(most).tolist())

        def grow(node: int, left: int, tree: int = tree, numbers: Any = numbers) -> None:
            is_leaf = left == 0 or (left < depth and rng.random() < 0.3)
            yes, no = (0, 0) if is_leaf else (next(numbers), next(numbers))
            mode = "LEAF" if is_leaf else f"BRANCH_{modes[int(rng.integers(len(modes)))]}"
            value = float(np.round(rng.standard_normal() * 2) / 2)
            tracks = int(rng.integers(2))
            rows.append((tree, node, int(rng.integers(4)), mode, value, yes, no, tracks))
            if not is_leaf:
                grow(yes, left - 1)
                grow(no, left - 1)

        grow(next(numbers), depth)
    order = range(len(rows)) if ordered else rng.permutation(len(rows)).tolist()
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    return {f"nodes_{n}": [rows[i][k] for i in order] for k, n in enumerate(names)}


def added(nodes: dict[str, list[Any]], name: str, ids: list[int], *, positive: bool = False) -> Any:
    """What leaves add: one target each of those of `ids` in turn."""
    pairs = zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
    leaves = [(t, n) for t, n, m in pairs if m == "LEAF"]
    weights = floats(len(leaves), seed=9) / 3
    targets = "class" if name == "class" else "target"
    return {
        f"{targets}_treeids": [t for t, _ in leaves],
        f"{targets}_nodeids": [n for _, n in leaves],
        f"{targets}_ids": [ids[k % len(ids)] for k in range(len(leaves))],
        f"{targets}_weights": (np.abs(weights) if positive else weights).tolist(),
    }


def walked(case: Case, x: Any) -> list[list[tuple[int, float]]]:
    """What each tree adds to a sample, (target, weight), by a walk from its first node."""
    a = case.attributes
    kind = "class" if "class_ids" in a else "target"
    count = len(a["nodes_treeids"])
    at = {(a["nodes_treeids"][n], a["nodes_nodeids"][n]): n for n in range(count)}
    weights: dict[tuple[int, int], list[tuple[int, float]]] = {}
    columns = (a[f"{kind}_{c}"] for c in ("treeids", "nodeids", "ids", "weights"))
    for t, n, i, w in zip(*columns, strict=True):
        weights.setdefault((t, n), []).append((i, w))
    led = {
        (t, k)
        for t, m, yes, no in zip(
            a["nodes_treeids"], a["nodes_modes"], a["nodes_truenodeids"], a["nodes_falsenodeids"],
            strict=True,
        )
        if m != "LEAF"
        for k in (yes, no)
    }  # fmt: skip
    compare = {
        "LEQ": lambda v, t: v <= t, "LT": lambda v, t: v < t, "GTE": lambda v, t: v >= t,
        "GT": lambda v, t: v > t, "EQ": lambda v, t: v == t, "NEQ": lambda v, t: v != t,
    }  # fmt: skip
    found = []
    for root in sorted(set(at) - led):
        node = root
        while (mode := a["nodes_modes"][at[node]]) != "LEAF":
            n = at[node]
            value = x[a["nodes_featureids"][n]]
            goes = compare[mode.removeprefix("BRANCH_")](value, np.float32(a["nodes_values"][n]))
            goes = goes or (np.isnan(value) and bool(a["nodes_missing_value_tracks_true"][n]))
            node = root[0], a["nodes_truenodeids" if goes else "nodes_falsenodeids"][n]
        found.append(weights.get(node, []))
    return found


def forest(modes: tuple[str, ...], ids: list[int], **attributes: Any) -> Case:
    nodes = grown(modes)
    return learned("TreeEnsembleRegressor", ROUND, **nodes, **added(nodes, "target", ids), **attributes)


FORESTS = [
    *(forest((mode,), [0], n_targets=1) for mode in MODES),
    forest(MODES, [0], n_targets=1),
    forest(MODES[:2], [0, 2, 1], n_targets=3),
    forest(MODES[:1], [0], n_targets=1, base_values=[10.0]),
    *(
        forest(MODES[:1], [0, 1], n_targets=2, aggregate_function=aggregate)
        for aggregate in ("AVERAGE", "MIN", "MAX")
    ),
]


@pytest.mark.parametrize("case", FORESTS, ids=range(len(FORESTS)))
def test_forests_are_walked(case: Case) -> None:
    (found,) = check_traced_as_eager(case)
    aggregate = case.attributes.get("aggregate_function", "SUM")
    count = case.attributes["n_targets"]
    wanted = np.zeros((len(ROUND), count))
    for row, x in zip(wanted, ROUND, strict=True):
        each = walked(case, x)
        assert len(each) == 5
        for target in range(count):
            own = [w for tree in each for t, w in tree if t == target]
            row[target] = {
                "SUM": sum(own),
                "AVERAGE": sum(own) / len(each),
                "MIN": min(own, default=0),
                "MAX": max(own, default=0),
            }[aggregate]
    wanted += case.attributes.get("base_values", [0.0])
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def classifier(ids: list[int], classes: list[int], *, positive: bool = False, **more: Any) -> Case:
    nodes = grown(MODES[:2], ordered=True)
    leaves = added(nodes, "class", ids, positive=positive)
    return learned(
        "TreeEnsembleClassifier",
        ROUND,
        outputs=2,
        classlabels_int64s=classes,
        **nodes,
        **leaves,
        **more,
    )


CLASSIFIERS = [
    machine("RBF", prob_a=[-1.0, -2.0, -1.5], prob_b=[0.1, 0.0, -0.2]),
    classifier([0, 1, 2], [5, 3, 8]),
    classifier([0, 1, 2], [5, 3, 8], post_transform="SOFTMAX", base_values=[0.5, 0.0, -0.5]),
    classifier([0], [0, 1], post_transform="LOGISTIC"),
    classifier([0], [0, 1], post_transform="LOGISTIC", base_values=[0.25]),
    classifier([0], [0, 1]),
    classifier([0], [0, 1], positive=True),
    classifier([0], [0, 1], positive=True, post_transform="LOGISTIC"),
]


# Of these onnxruntime gives 0 and 1 for the labels that the model has.
OF_TWO = classifier([0, 1], [5, 3], post_transform="SOFTMAX")


@pytest.mark.parametrize("case", CLASSIFIERS, ids=range(len(CLASSIFIERS)))
def test_classifiers_end_as_onnxruntime_does(case: Case) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    model = case.model
    model.ir_version = 10
    session = runtime.InferenceSession(model.SerializeToString())
    for found, wanted in zip(check_traced_as_eager(case), session.run(None, case.values), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("case", [*CLASSIFIERS[1:3], OF_TWO], ids=range(3))
def test_classifiers_are_those_of_onnx(case: Case) -> None:
    for found, wanted in zip(run(case), expected(case), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def ensemble(**attributes: Any) -> Case:
    """Of version 5: 1 or 2, by whether x[1] is 1 or -0.5, where x[0] <= 0.5 or is missing, else 3; and
    the same once more where x[2] < 0, else 3.
    """
    tensor = onnx.numpy_helper.from_array
    return learned(
        "TreeEnsemble", ROUND, version=5, n_targets=2,
        nodes_splits=tensor(np.array([0.5, 0.0, 0.0], np.float32)),
        nodes_featureids=[0, 1, 2],
        nodes_modes=tensor(np.array([0, 6, 1], np.uint8)),
        nodes_truenodeids=[1, 0, 0], nodes_trueleafs=[0, 1, 0],
        nodes_falsenodeids=[2, 1, 2], nodes_falseleafs=[1, 1, 1],
        nodes_missing_value_tracks_true=[1, 0, 0],
        leaf_targetids=[0, 1, 0],
        leaf_weights=tensor(np.array([1.0, 2.0, 3.0], np.float32)),
        membership_values=tensor(np.array([1.0, -0.5, np.nan], np.float32)),
        tree_roots=[0, 2], **attributes,
    )  # fmt: skip


def test_ensembles_of_sets() -> None:
    (found,) = check_traced_as_eager(ensemble())
    wanted = np.zeros((len(ROUND), 2))
    for row, x in zip(wanted, ROUND, strict=True):

        def of(x: Any) -> tuple[int, float]:
            if not (x[0] <= 0.5 or np.isnan(x[0])):
                return 0, 3.0
            return (0, 1.0) if x[1] in (1, -0.5) else (1, 2.0)

        for target, weight in (of(x), of(x) if x[2] < 0 else (0, 3.0)):
            row[target] += weight
    np.testing.assert_array_equal(found, wanted)
    (scores,) = run(ensemble(aggregate_function=0, post_transform=2))
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-wanted / 2)), 1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes_featureids": [4]}, "features from 4 to 4: there are 4"),
        ({"nodes_truenodeids": [7]}, "node 0 of tree 0 leads to 7"),
        ({"nodes_truenodeids": [0], "nodes_modes": ["BRANCH_LT"]}, "nodes that its first one does not"),
        ({"target_ids": [1]}, "target ids from 0 to 1: there are 1"),
        ({"target_nodeids": [3]}, "tree 0 has no node 3"),
        ({"nodes_values": None}, "nodes_values"),
        ({"target_weights": None}, "target_weights"),
    ],
    ids=str,
)
def test_trees_that_contradict_themselves_are_refused(changes: dict[str, Any], said: str) -> None:
    """A comparison of x[0] with two leaves, of which the first of each list is changed."""
    sound: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LT", "LEAF", "LEAF"], "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    leaves_of_any_feature = {**sound, "nodes_featureids": [0, -2, 9]}
    run(learned("TreeEnsembleRegressor", X, **leaves_of_any_feature))
    for name, first in changes.items():
        if first is None:
            del sound[name]
        else:
            sound[name][:1] = first
    with pytest.raises(InvalidModel, match=said):
        run(learned("TreeEnsembleRegressor", X, **sound))


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregate_function": -1},
        {"post_transform": 9},
        {"leaf_targetids": [2, 0, 0]},
        {"tree_roots": [3]},
    ],
    ids=str,
)
def test_ensembles_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    case = ensemble()
    with pytest.raises(InvalidModel, match="there are"):
        run(replace(case, attributes={**case.attributes, **changes}))


def test_nothing_to_join_or_to_relabel() -> None:
    case = learned("FeatureVectorizer", X[:0], X[:0, :2], inputdimensions=[4, 2])
    assert run(replace(case, traced=2))[0].shape == (0, 6)
    labels = learned("LabelEncoder", NUMBERS, keys_int64s=[9], values_int64s=[1], default_int64=5)
    assert (run(labels)[0] == 5).all()


def test_trees_without_end_are_refused() -> None:
    case = learned(
        "TreeEnsembleRegressor", X, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LT", "BRANCH_LT", "BRANCH_LT"],
        nodes_values=[0.0, 0.0, 0.0], nodes_truenodeids=[1, 2, 1], nodes_falsenodeids=[2, 2, 2],
        target_treeids=[0], target_nodeids=[2], target_ids=[0], target_weights=[1.0], n_targets=1,
    )  # fmt: skip
    with pytest.raises(InvalidModel, match="leads to itself"):
        run(case)


def test_every_row_has_a_case() -> None:
    cases = [*FEATURES, *LINEAR, *FORESTS, *CLASSIFIERS, ensemble(), learned("ZipMap", X)]
    for module in (features, classifiers, trees):
        assert uncovered(module, cases) == []
