"""fft, cholesky, triangular-solve and calls of LAPACK: on the host by NumPy (H1), XLA as the peer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.hlo.xla import run_by_xla
from tests.support.commands import Commands
from tests.support.parameters import each_of

from neuronsim import api, ops
from neuronsim.errors import InvalidModel, UnsupportedOperator, UnsupportedType
from neuronsim.hlo import parse, proto

rng = np.random.default_rng(2020)
REAL = rng.normal(size=(2, 4, 6)).astype(np.float32)
COMPLEX = (REAL + 1j * rng.normal(size=REAL.shape)).astype(np.complex64)
SQUARE = rng.normal(size=(3, 5, 5)).astype(np.float32)
POSITIVE = (SQUARE @ SQUARE.transpose(0, 2, 1) + 5 * np.eye(5)).astype(np.float32)
NAMES = {"f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128"}


def typed(x: Any) -> str:
    return f"{NAMES[x.dtype.str[1:]]}[{','.join(map(str, x.shape))}]"


def one(line: str, *arrays: Any) -> str:
    """A module of one instruction of its parameters a, b, ..."""
    given = "".join(f"  {'abc'[n]} = {typed(x)} parameter({n})\n" for n, x in enumerate(arrays))
    return f"HloModule m\nENTRY main {{\n{given}  ROOT y = {line}\n}}\n"


def run(text: str, *arrays: Any, target: str = "host") -> Any:
    found = api.compile(text.encode(), target=target, auto_cast="none")(*arrays)
    return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)


def check(text: str, wanted: Any, *arrays: Any, peer: bool) -> None:
    """NumPy's values in float64, rounded once; and near XLA's."""
    found = run(text, *arrays)
    assert typed(found) in text.partition("ROOT")[2]
    np.testing.assert_array_equal(found, wanted.astype(found.dtype))
    if peer:
        (others,) = run_by_xla(text, *arrays)
        np.testing.assert_allclose(found, others, rtol=1e-5, atol=1e-5 * np.abs(others).max())


# ---- fft -----------------------------------------------------------------------------------------


@each_of("axes", [1, 2, 3])
@each_of("wide", [False, True])
@each_of("kind", ops.FFT_TYPES)
def test_fft(kind: str, wide: bool, axes: int) -> None:
    x = REAL if kind == "RFFT" else COMPLEX
    x = x.astype(np.float64 if kind == "RFFT" else np.complex128) if wide else x
    lengths = x.shape[-axes:]
    last = {"RFFT": x.shape[-1] // 2 + 1, "IRFFT": 2 * x.shape[-1] - 2}.get(kind, x.shape[-1])
    lengths = (*lengths[:-1], last) if kind == "IRFFT" else lengths
    result = {"RFFT": "c", "IRFFT": "f"}.get(kind, "c") + str((64 if kind != "IRFFT" else 32) << wide)
    shape = ",".join(map(str, (*x.shape[:-1], last)))
    listed = ",".join(map(str, lengths))
    text = one(f"{result}[{shape}] fft(a), fft_type={kind}, fft_length={{{listed}}}", x)
    name = f"{kind.lower()}n"
    over = tuple(range(-axes, 0))
    widest = x.astype(np.complex128) if np.iscomplexobj(x) else x.astype(np.float64)
    check(text, getattr(np.fft, name)(widest, lengths, over), x, peer=axes == 2 and not wide)


def test_fft_of_nothing() -> None:
    text = one("c64[0,4] fft(a), fft_type=FFT, fft_length={4}", COMPLEX[:, :0, :4][0])
    assert run(text, COMPLEX[0, :0, :4]).shape == (0, 4)


@pytest.mark.parametrize(
    ("line", "x", "error", "match"),
    [
        ("c64[4,6] fft(a), fft_type=FFT, fft_length={5}", COMPLEX[0], InvalidModel, "takes the last"),
        ("c64[4,6] fft(a), fft_type=FFT, fft_length={}", COMPLEX[0], InvalidModel, "one to three"),
        ("c64[4,6] fft(a), fft_type=RFFT, fft_length={6}", REAL[0], InvalidModel, "the file says"),
        ("c64[4,6] fft(a), fft_type=FFT, fft_length={6}", REAL[0], UnsupportedType, "complex64 or"),
        ("c64[4,4] fft(a), fft_type=RFFT, fft_length={6}", COMPLEX[0], UnsupportedType, "float32 or"),
        ("f32[4,9] fft(a), fft_type=IRFFT, fft_length={9}", COMPLEX[0], InvalidModel, "takes the last"),
    ],
)
def test_fft_that_contradicts_itself(line: str, x: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        api.compile(one(line, x).encode(), target="host")


# ---- cholesky ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_cholesky(lower: bool, dtype: Any) -> None:
    a = POSITIVE.astype(dtype)
    if np.iscomplexobj(a):
        skew = rng.normal(size=a.shape) * 0.3
        a = (a + 1j * (skew - skew.transpose(0, 2, 1))).astype(dtype)
    noise = rng.normal(size=a.shape).astype(np.float32)  # in the triangle that is not read
    given = (a + (np.triu(noise, 1) if lower else np.tril(noise, -1))).astype(dtype)
    text = one(f"{typed(a)} cholesky(a){', lower=true' if lower else ''}", a)
    found = run(text, given)
    exact = np.linalg.cholesky(a.astype(np.complex128) if np.iscomplexobj(a) else a.astype(np.float64))
    wanted = exact if lower else np.conj(exact.swapaxes(-1, -2))
    tolerance = 1e-14 if dtype in (np.float64, np.complex128) else 1.2e-7
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert found.dtype == dtype
    if dtype is np.complex64:
        (peer,) = run_by_xla(text, given)
        np.testing.assert_allclose(found, peer, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, np.inf])
def test_cholesky_of_what_is_not_positive_is_nan(bad: float) -> None:
    a = POSITIVE.copy()
    a[1, 2, 2] = bad
    found = run(one(f"{typed(a)} cholesky(a), lower=true", a), a)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


def test_cholesky_of_bfloat16_rounds_once() -> None:
    a = POSITIVE.astype(ml_dtypes.bfloat16)
    text = "HloModule m\nENTRY e { a = bf16[3,5,5] parameter(0)\n ROOT y = bf16[3,5,5] cholesky(a), "
    found = run(text + "lower=true\n}", a)
    wanted = np.linalg.cholesky(a.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(found, wanted.astype(ml_dtypes.bfloat16))


# ---- triangular-solve ----------------------------------------------------------------------------

OPTIONS = list(itertools.product([True, False], [True, False], [True, False], ops.TRANSPOSES))


@each_of(("left", "lower", "unit", "transpose"), OPTIONS)
def test_triangular_solve(left: bool, lower: bool, unit: bool, transpose: str) -> None:
    for dtype in (np.float32, np.complex128):
        a = SQUARE.astype(dtype) + 4 * np.eye(5, dtype=dtype)
        if np.iscomplexobj(a):
            a += 1j * rng.normal(size=a.shape)
        b = rng.normal(size=(3, 5, 2) if left else (3, 2, 5)).astype(dtype)
        text = one(
            f"{typed(b)} triangular-solve(a, b), left_side={str(left).lower()}, "
            f"lower={str(lower).lower()}, unit_diagonal={str(unit).lower()}, transpose_a={transpose}",
            *(a, b),
        )
        found = run(text, a, b)
        wide = a.astype(np.complex128 if np.iscomplexobj(a) else np.float64)
        used = np.tril(wide) if lower else np.triu(wide)  # the other triangle is not read
        if unit:
            used[..., range(5), range(5)] = 1
        turned = used if transpose == "NO_TRANSPOSE" else used.swapaxes(-1, -2)
        turned = turned.conj() if transpose == "ADJOINT" else turned
        back = turned @ found if left else found @ turned
        np.testing.assert_allclose(back, b, rtol=2e-4, atol=2e-4)
        if left and not unit and transpose == "ADJOINT" and dtype is np.complex128:
            (peer,) = run_by_xla(text, a, b)
            np.testing.assert_allclose(found, peer, rtol=1e-9, atol=1e-9)


def test_triangular_solve_by_zero_is_infinite() -> None:
    a, b = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    text = one("f32[1,1] triangular-solve(a, b), left_side=true, lower=true", a, b)
    assert run(text, a, b) == np.inf


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        ((5, 4), (5, 2), True),
        ((5, 5), (4, 2), True),
        ((5, 5), (5, 2), False),
        ((2, 5, 5), (5, 2), True),
    ],
)
def test_triangular_solve_of_other_shapes(a: Any, b: Any, left: bool) -> None:
    x, y = np.ones(a, np.float32), np.ones(b, np.float32)
    line = f"{typed(y)} triangular-solve(a, b), left_side={str(left).lower()}, lower=true"
    with pytest.raises(InvalidModel, match=r"not square|does not go with"):
        api.compile(one(line, x, y).encode(), target="host")


# ---- calls of LAPACK, as JAX lowers its linear algebra ---------------------------------------------

LAPACK = (
    '(f32[5,5], s32[]) custom-call(a), custom_call_target="lapack_spotrf_ffi", '
    "backend_config={uplo = 76 : ui8}"
)
A, S, B = SQUARE, POSITIVE, rng.normal(size=(3, 5, 2)).astype(np.float32)


# Functions of JAX, each with its arrays and the types that it is computed in.
KINDS = {
    "solve": "fD",
    "inv": "d",
    "slogdet": "F",
    "cholesky": "D",
    "cho_solve": "d",
    **dict.fromkeys(("expm", "lstsq", "pinv", "lu", "qr"), "f"),
    **{f"gradient of {name}": "f" for name in ("qr", "svd", "cholesky")},
}


@pytest.mark.parametrize(("name", "kind"), [(name, k) for name, kinds in KINDS.items() for k in kinds])
def test_linear_algebra_of_jax(name: str, kind: str) -> None:
    jax = pytest.importorskip("jax")
    linalg, scipy = jax.numpy.linalg, jax.scipy.linalg
    functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "solve": (linalg.solve, (A, B)),
        "inv": (linalg.inv, (A,)),
        "slogdet": (linalg.slogdet, (A,)),
        "cholesky": (linalg.cholesky, (S,)),
        "cho_solve": (lambda s, b: scipy.cho_solve(scipy.cho_factor(s), b), (S[0], B[0])),
        "expm": (scipy.expm, (A[0] / 4,)),
        "lstsq": (lambda a, b: linalg.lstsq(a, b)[0], (A[0, :, :3], B[0])),
        "pinv": (linalg.pinv, (A[0, :3],)),
        "lu": (scipy.lu, (A[0],)),
        "qr": (linalg.qr, (A[:, :, :3],)),
        "gradient of qr": (jax.grad(lambda a: linalg.qr(a)[1].sum()), (A,)),
        "gradient of svd": (jax.grad(lambda a: linalg.svd(a, compute_uv=False).sum()), (A,)),
        "gradient of cholesky": (jax.grad(lambda s: linalg.cholesky(s).sum()), (S,)),
    }
    function, arrays = functions[name]
    with jax.enable_x64(True):
        given = [x.astype(kind) for x in arrays]
        check_jax(jax, function, given, 1e-3 if kind in "fF" else 1e-9)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("kind", "fdF")
def test_factorizations_as_jax_spells_them_for_every_device(mode: str, kind: str) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x = A[:, :, :3].astype(kind)
        program = api.compile(
            lambda a: jax.tree.leaves(jax.numpy.linalg.qr(a, mode=mode)), x, target="host"
        )
        peers = jax.tree.leaves(jax.numpy.linalg.qr(x, mode=mode))
        for own, peer in zip(program(x), peers, strict=True):
            np.testing.assert_allclose(np.asarray(own), peer, atol=1e-9 if kind == "d" else 1e-5)


def on_host(jax: Any, function: Any, *given: Any) -> tuple[np.ndarray, ...]:
    """What a function of JAX gives by way of the file that it lowers to."""
    lowered = jax.jit(function).lower(*given).compiler_ir("hlo")
    module = lowered.as_serialized_hlo_module_proto()
    found = api.compile(module, target="host", auto_cast="none")(*given)
    return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))


def check_jax(jax: Any, function: Any, given: Any, tolerance: float) -> None:
    leaves = on_host(jax, function, *given)
    for own, peer in zip(leaves, jax.tree.leaves(function(*given)), strict=True):
        np.testing.assert_allclose(own, peer, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("full", [True, False])
def test_singular_values_of_jax(full: bool) -> None:
    jax = pytest.importorskip("jax")
    function = jax.jit(lambda a: jax.numpy.linalg.svd(a, full_matrices=full))
    for x in (A[:, :, :3], A[:, :3], A[0].astype(np.complex64)):
        left, values, right = on_host(jax, function, x)
        np.testing.assert_allclose(values, np.linalg.svd(x, compute_uv=False), rtol=1e-5)
        least = values.shape[-1]
        product = left[..., :least] * values[..., None, :] @ right[..., :least, :]
        np.testing.assert_allclose(product, x, atol=1e-5)
        assert [left.shape, right.shape] == [v.shape for v in function(x)[::2]]


def test_eigenvalues_of_jax() -> None:
    jax = pytest.importorskip("jax")
    for function, x in ((jax.numpy.linalg.eigh, S), (jax.numpy.linalg.eig, A)):
        values, vectors = on_host(jax, function, x)
        np.testing.assert_allclose(x @ vectors, vectors * values[..., None, :], atol=2e-5)
        peers = np.sort_complex(np.asarray(function(x)[0]))
        np.testing.assert_allclose(np.sort_complex(values), peers, rtol=1e-4, atol=1e-5)


def test_what_has_no_decomposition_is_nan() -> None:
    jax = pytest.importorskip("jax")
    bad = np.full((2, 2), np.nan, np.float32)
    for function in (jax.numpy.linalg.eigh, jax.numpy.linalg.svd, jax.numpy.linalg.cholesky):
        assert all(np.isnan(x).any() for x in on_host(jax, function, bad))
    (inverse,) = on_host(jax, jax.numpy.linalg.inv, np.zeros((2, 2), np.float32))  # singular
    assert not np.isfinite(inverse).any()


def test_tridiagonal_systems_of_jax() -> None:
    jax = pytest.importorskip("jax")
    low, high, b = (rng.normal(size=n).astype(np.float32) for n in (6, 6, (6, 2)))
    given = [low, np.full(6, 5, np.float32), high, b]
    given[0][0] = given[2][-1] = 0
    check_jax(jax, jax.lax.linalg.tridiagonal_solve, given, 1e-5)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ("{uplo = 77 : ui8}", "uplo = 77"),
        ("{what = 76 : ui8}", "what = 76"),
        ("{uplo = x}", "uplo = x"),
    ],
)
def test_a_configuration_that_is_not_known(config: str, match: str) -> None:
    line = LAPACK.replace("{uplo = 76 : ui8}", config)
    with pytest.raises(UnsupportedOperator, match=match):
        api.compile(one(line, S[0]).encode(), target="host")


# ---- what a Trn1 has not -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("f32[5,5] cholesky(a), lower=true", "NCC_EVRF001"),
        ("f32[5,5] triangular-solve(a, a), left_side=true, lower=true", "NCC_EVRF001"),
        (LAPACK, "NCC_EVRF015"),
    ],
)
@pytest.mark.parametrize("target", ["trn1", "inf2", "inf1"])
def test_a_device_refuses_by_name_what_the_host_computes(line: str, code: str, target: str) -> None:
    text = one(line, S[0]).encode()
    with pytest.raises(UnsupportedOperator, match=rf"\[{code}\] .* has no .*\(y\).*--target host"):
        api.compile(text, target=target)
    assert api.compile(text, target="host").outputs
    assert [f.instruction for f in api.lint(text)] == ["y"]
    assert api.plan(text, auto_cast="all").decisions is not None


def test_fft_on_a_device_is_refused_by_its_complex_type() -> None:
    text = one("c64[2,4,4] fft(a), fft_type=RFFT, fft_length={6}", REAL).encode()
    with pytest.raises(UnsupportedType, match=r"NCC_EVRF004.*target 'host'"):
        api.compile(text)


def test_run_on_the_host_by_the_command_line(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "m.hlo").write_text(one(f"{typed(S)} cholesky(a), lower=true", S))
    np.savez(tmp_path / "x.npz", a=S)
    files = ["--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
    given = ["run", tmp_path / "m.hlo", *files, "--auto-cast=none"]
    commands.refused(*given)
    commands.ok(*given, "--target=host")
    found = np.load(tmp_path / "y.npz")["output_0"]
    np.testing.assert_allclose(found, np.linalg.cholesky(S), rtol=1e-5, atol=1e-6)


def test_saved_programs_keep_the_options(tmp_path: Any) -> None:
    text = one("f32[5,5] triangular-solve(a, b), lower=true, transpose_a=TRANSPOSE", S[0], S[1])
    module = parse.from_text(text)
    again = proto.from_bytes(proto.to_bytes(module))
    assert again.root.attributes == module.root.attributes
    program = api.compile(module, target="host")
    program.save(tmp_path / "p.nsim")
    loaded = api.load(tmp_path / "p.nsim")
    assert np.array_equal(np.asarray(loaded(S[0], S[1])), np.asarray(program(S[0], S[1])))
