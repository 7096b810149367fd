"""Memory that is shared with other libraries: ndarrays, the buffer protocol, DLPack (an exporter and a
consumer in ctypes; torch where it is installed).
"""

from __future__ import annotations

import array
import ctypes
import gc
import sys
from typing import Any, ClassVar

import ml_dtypes
import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType

pytestmark = pytest.mark.isa_independent  # bits are moved

ALL = list(DTYPES.values())
NATIVE = [t for t in ALL if t.storage == t.numpy and t is not np.tfloat32]
FOREIGN = [t for t in ALL if t not in NATIVE]


# ---- asarray ----------------------------------------------------------------------------------------


@each_of("dtype", [t for t in ALL if t is not np.tfloat32], ids=lambda t: t.name)
def test_ndarrays_are_shared_whatever_their_strides(dtype: DType) -> None:
    whole = numpy.zeros((4, 6), dtype.numpy)
    for native in (whole, whole[1], whole[::2, ::-3], whole.T, whole[1, 2:3].reshape(())):
        x = np.asarray(native)
        assert x.dtype is dtype
        assert (x.shape, x.strides) == (native.shape, native.strides)
        x[...] = 1
        assert (native == numpy.ones((), dtype.numpy)).all()
        native[...] = 0
        assert not x.bits.data.astype(bool).any()
        assert numpy.shares_memory(numpy.asarray(x), native)
        assert not numpy.shares_memory(np.asarray(native, copy=True).bits.data, native)


def test_read_only_ndarrays_stay_read_only() -> None:
    native = numpy.ones(2, ml_dtypes.bfloat16)
    native.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        np.asarray(native)[0] = 2
    assert np.asarray(native, copy=True).flags.writeable


def test_copy_is_the_standards() -> None:
    x = np.asarray([1.0, 2.0])
    assert np.asarray(x) is x
    assert not numpy.shares_memory(np.asarray(x, copy=True).bits.data, x.bits.data)
    assert numpy.shares_memory(np.asarray(x, copy=False).bits.data, x.bits.data)
    assert numpy.shares_memory(np.asarray(x, dtype="float32", copy=False).bits.data, x.bits.data)
    swapped, unaligned = numpy.arange(3, dtype=">i4"), numpy.zeros(9, "u1")[1:].view("f4")
    for given in (x.astype("bfloat16", copy=True), [1.0], 1.0, swapped, unaligned):
        with pytest.raises(ValueError, match="copy"):
            np.asarray(given, dtype="float32" if isinstance(given, np.Array) else None, copy=False)


def test_swapped_and_unaligned_bytes_are_copied() -> None:
    assert np.asarray(numpy.array([1, 256], ">i2")).tolist() == [1, 256]
    unaligned = numpy.frombuffer(b"\0" + numpy.float32([1.5, 2.5]).tobytes(), "u1")[1:].view("f4")
    x = np.asarray(unaligned)
    assert x.tolist() == [1.5, 2.5]
    assert x.flags.aligned


def test_sequences_with_arrays_keep_the_arrays_type() -> None:
    a, b = np.asarray([1.5, 2.0], "bfloat16"), np.asarray([1.0, 2.0], "float16")
    assert np.asarray([a, a]).dtype is np.bfloat16
    assert np.asarray([a, b]).dtype is np.float32
    assert np.asarray([a[0], 0.1]).tolist() == [1.5, float(ml_dtypes.bfloat16(0.1))]
    assert np.asarray([[a[0], 2], (3, a[1])]).tolist() == [[1.5, 2], [3, 2]]
    assert np.asarray([a, [1, 2]], dtype="int8").tolist() == [[1, 2], [1, 2]]
    assert np.asarray([numpy.float64(0.1), 1]).dtype is np.float64  # a NumPy scalar has a type
    assert np.asarray([numpy.ones(2, "i1"), [3, 4]]).dtype is np.int8
    assert np.asarray((0.1, 1)).dtype is np.float32
    assert np.asarray(range(3)).tolist() == [0, 1, 2]
    assert np.asarray([]).dtype is np.float32
    payload = np.asarray(numpy.array([0x7FC1], "u2")).view("bfloat16")
    assert np.asarray([payload]).tobytes() == payload.tobytes()


@each_of("value", ["1", b"1", None, {}, object(), ["a"], [None], [[1], [1, 2]], [b"1"], {1}, iter([1])])
def test_what_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(NeuronSimError, match="array"):
        np.asarray(value)


def test_python_numbers_take_their_default_types(restored_default: None) -> None:
    with pytest.raises(OverflowError, match="int64"):
        np.asarray([2**70])
    assert np.asarray(2**70, dtype="float32").item() == 2.0**70
    np.set_default_dtype("float64")
    assert np.asarray(1j).dtype is np.complex128


class Interface:
    def __init__(self, native: numpy.ndarray) -> None:
        self.__array_interface__ = native.__array_interface__
        self.native = native


class Converted:
    def __array__(self, dtype: Any = None, copy: Any = None) -> numpy.ndarray:
        return numpy.array([1.5, 2.5], ml_dtypes.bfloat16)


def test_objects_that_export_memory_are_shared() -> None:
    numbers = array.array("f", [1, 2, 3])
    native = numpy.array([1, 2, 3], "i2")
    for exporter, dtype in (
        (numbers, np.float32),
        (memoryview(numbers), np.float32),
        (bytearray(b"\1\2\3"), np.uint8),
        (Interface(native), np.int16),
    ):
        x = np.asarray(exporter)
        assert (x.dtype, x.tolist()) == (dtype, [1, 2, 3])
        x[0] = 7
        assert np.asarray(exporter)[0].item() == 7
        x[0] = 1
    assert np.asarray(Converted()).dtype is np.bfloat16


# ---- __array__ and the buffer protocol --------------------------------------------------------------


@each_of("dtype", NATIVE, ids=lambda t: t.name)
def test_the_buffer_protocol_shares_native_types(dtype: DType) -> None:
    x = np.asarray([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    view = memoryview(x)
    assert (view.shape, view.itemsize, view.readonly) == ((2, 3), dtype.itemsize, False)
    assert bytes(x.T) == x.T.tobytes()
    numpy.frombuffer(x, dtype.numpy)[0] = 0
    assert not x[0, 0].bits.data
    x.setflags(write=False)
    assert memoryview(x).readonly
    assert memoryview(x[:, ::2]).strides == (3 * dtype.itemsize, 2 * dtype.itemsize)


@pytest.mark.parametrize("dtype", FOREIGN, ids=lambda t: t.name)
def test_the_buffer_protocol_refuses_other_types_with_a_word(dtype: DType) -> None:
    with pytest.raises(BufferError, match=f"no {dtype.name}.*uint{8 * dtype.itemsize}"):
        memoryview(np.zeros(2, dtype=dtype))


def test_a_buffer_outlives_its_array() -> None:
    native = numpy.arange(1000.0)
    before = sys.getrefcount(native)
    view = memoryview(np.asarray(native))
    assert view[999] == 999
    assert sys.getrefcount(native) == before + 1
    view.release()
    assert sys.getrefcount(native) == before


@each_of("dtype", ALL, ids=lambda t: t.name)
def test_array_gives_a_view_of_numpys_type(dtype: DType) -> None:
    x = np.zeros(3, dtype=dtype)
    native = numpy.asarray(x)
    assert native.dtype == dtype.numpy
    assert numpy.shares_memory(native, x.bits.data)
    assert native.flags.writeable == (dtype is not np.tfloat32)
    assert not numpy.shares_memory(numpy.array(x), x.bits.data)
    if dtype.kind != "complex":
        with pytest.raises(ValueError, match="copy"):
            numpy.asarray(x, "complex128", copy=False)


# ---- DLPack -----------------------------------------------------------------------------------------
# An independent reading of DLPack 1.0's structures.


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("device_type", "device_id", "ndim")),
        *((name, ctypes.c_uint8) for name in ("code", "bits")),
        ("lanes", ctypes.c_uint16),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("shape", "strides")),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("owner", ctypes.c_void_p), ("deleter", DELETER)]
    name, used = b"dltensor", b"used_dltensor"


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]
    name, used = b"dltensor_versioned", b"used_dltensor_versioned"


api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]


class Exporter:
    """Six bytes-wide elements as an object with `__dlpack__`, which counts its deletions."""

    # Whose memory is given away: an exporter lives until its deleter was called, as DLPack asks.
    taken: ClassVar[set[Exporter]] = set()

    def __init__(self, kind: type[Any], **tensor: Any) -> None:
        self.memory = (ctypes.c_uint8 * 64)(*range(64))
        self.deleted = 0
        self.managed = kind()
        t = self.managed.tensor
        t.data, t.device_type, t.ndim = ctypes.addressof(self.memory), 1, 2
        t.code, t.bits, t.lanes = 1, 8, 1
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        t.shape = self.shape
        for name, value in tensor.items():
            setattr(t if hasattr(t, name) else self.managed, name, value)
        if kind is Versioned and "major" not in tensor:
            self.managed.major = 1
        self.kind = kind

        def delete(managed: int) -> None:
            assert managed == ctypes.addressof(self.managed)
            self.deleted += 1
            self.taken.discard(self)

        self.deleter = DELETER(delete)
        self.managed.deleter = self.deleter

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        if self.kind is Unversioned and keywords:
            raise TypeError("an exporter of before 2023.12")
        self.taken.add(self)
        self.capsule = api.PyCapsule_New(ctypes.addressof(self.managed), self.kind.name, None)
        return self.capsule


@pytest.mark.parametrize("kind", [Unversioned, Versioned])
def test_from_dlpack_reads_in_place_and_deletes_once(kind: Any) -> None:
    exporter = Exporter(kind)
    x = np.from_dlpack(exporter)
    assert (x.dtype, x.tolist()) == (np.uint8, [[0, 1, 2], [3, 4, 5]])
    assert api.PyCapsule_GetName(exporter.capsule) == kind.used
    assert x.flags.writeable == (kind is Versioned)
    exporter.memory[0] = 9
    assert x[0, 0].item() == 9
    view = x[1:]
    del x
    assert (exporter.deleted, view.tolist()) == (0, [[3, 4, 5]])
    del view
    assert exporter.deleted == 1


def test_from_dlpack_reads_strides_offsets_and_flags() -> None:
    strides = (ctypes.c_int64 * 2)(-1, 2)
    x = np.from_dlpack(Exporter(Versioned, strides=strides, byte_offset=1, flags=1))
    gc.collect()  # nobody but the array refers to the exporter
    assert x.tolist() == [[1, 3, 5], [0, 2, 4]]
    assert not x.flags.writeable
    copied = np.from_dlpack(Exporter(Versioned, strides=strides, byte_offset=1, flags=1), copy=True)
    copied[0, 0] = 7
    assert copied[0].tolist() == [7, 3, 5]
    unaligned = np.from_dlpack(Exporter(Versioned, byte_offset=1, code=4, bits=16))
    assert unaligned.flags.aligned
    assert unaligned.tobytes() == bytes(range(1, 13))


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        ({"device_type": 2}, BufferError),
        ({"lanes": 2}, BufferError),
        ({"bits": 4}, BufferError),
        ({"ndim": 65}, BufferError),
        ({"ndim": -1}, BufferError),
        ({"shape": (ctypes.c_int64 * 2)(-1, 2)}, BufferError),
        ({"code": 2, "bits": 128}, UnsupportedType),
        ({"code": 9}, UnsupportedType),
        ({"major": 2}, BufferError),
    ],
)
def test_from_dlpack_refuses_what_it_cannot_read(tensor: Any, error: type[Exception]) -> None:
    exporter = Exporter(Versioned, **tensor)
    with pytest.raises(error):
        np.from_dlpack(exporter)
    with pytest.raises(UnsupportedType, match="__dlpack__"):
        np.from_dlpack([1])


def test_from_dlpack_refuses_a_used_capsule() -> None:
    class Again:
        capsule = np.ones(2).__dlpack__(max_version=(1, 0))

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.capsule

    assert np.from_dlpack(Again()).tolist() == [1, 1]
    with pytest.raises(BufferError, match="used already"):
        np.from_dlpack(Again())


# The codes of DLPack's header.
CODES = {
    "int8": (0, 8),
    "uint64": (1, 64),
    "float16": (2, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "tfloat32": (2, 32),
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "bool": (6, 8),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
}


@each_of("name", CODES)
@each_of(("kind", "version"), [(Unversioned, None), (Versioned, (1, 3))])
def test_dlpack_capsules_say_what_the_array_is(name: str, kind: Any, version: Any) -> None:
    x = np.asarray([[1, 0], [1, 1], [0, 1]], dtype=name).T[:, ::-1]
    capsule = x.__dlpack__(max_version=version)
    assert api.PyCapsule_GetName(capsule) == kind.name
    managed = kind.from_address(api.PyCapsule_GetPointer(capsule, kind.name))
    t = managed.tensor
    assert (t.code, t.bits, t.lanes, t.device_type, t.ndim) == (*CODES[name], 1, 1, 2)
    assert (t.shape[0], t.shape[1]) == (2, 3)
    copied = name == "tfloat32"  # what others wrote would not be rounded (C2)
    if kind is Versioned:
        assert (managed.major, managed.flags) == (1, 2 if copied else 0)
    if not copied:
        assert t.data + t.byte_offset == x.bits.data.ctypes.data
        assert (t.strides[0], t.strides[1]) == (1, -2)
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_capsules_keep_the_memory_and_let_it_go_once() -> None:
    native = numpy.arange(6.0, dtype="f4")
    before = sys.getrefcount(native)
    for version in (None, (1, 0)):
        x = np.asarray(native)
        capsule = x.__dlpack__(max_version=version)
        del x
        assert sys.getrefcount(native) == before + 1
        del capsule  # that nobody took
        assert sys.getrefcount(native) == before
        y = np.from_dlpack(np.asarray(native))
        y[0] = 5
        assert native[0] == 5
        del y
        assert sys.getrefcount(native) == before


def test_dlpack_copies_and_refusals() -> None:
    x = np.asarray([1.0, 2.0])
    assert not numpy.shares_memory(np.from_dlpack(x, copy=True).bits.data, x.bits.data)
    assert numpy.shares_memory(np.from_dlpack(x, copy=False).bits.data, x.bits.data)
    x.setflags(write=False)
    assert not np.from_dlpack(x).flags.writeable
    for exporter, options, error, said in (
        (x, {}, BufferError, None),  # unversioned, read-only
        (x, {"dl_device": (2, 0)}, BufferError, None),
        (np.zeros(2, dtype="tfloat32"), {"copy": False}, BufferError, None),
        (np.ones(2), {"stream": 1}, ValueError, "stream"),
    ):
        with pytest.raises(error, match=said):
            exporter.__dlpack__(**options)
    for empty in (np.zeros((0, 3)), np.zeros(())):
        assert np.from_dlpack(empty).shape == empty.shape


def test_numpy_takes_dlpack() -> None:
    x = np.asarray([[1, 2], [3, 4]], dtype="int16")
    native = numpy.from_dlpack(x.T)
    assert native.tolist() == [[1, 3], [2, 4]]
    assert numpy.shares_memory(native, x.bits.data)
    assert numpy.shares_memory(np.from_dlpack(native).bits.data, native)


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "int64", "bool", "complex64"],
)
def test_torch_shares_memory_both_ways(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.asarray([[1, 0, 1], [1, 1, 0]], dtype=name)
    tensor = torch.from_dlpack(x.T)
    assert tensor.dtype is getattr(torch, name)
    assert tensor.to(torch.complex64).real.tolist() == [[1, 1], [0, 1], [1, 0]]
    back = np.from_dlpack(tensor)
    assert (back.dtype, back.shape) == (x.dtype, (3, 2))
    assert np.asarray(tensor).dtype is x.dtype
    back[0, 1] = 0
    assert not tensor[0, 1].to(torch.complex64).abs().item()
    assert not x[1, 0].bits.data
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(torch.ones(2, requires_grad=True))
