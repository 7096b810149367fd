#include <algorithm>
#include <map>
#include <new>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/eager.h"
#include "bindings/kernels.h"
#include "products/convolution/convolution.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

using ChainPointer = std::shared_ptr<Chain>;
using ColumnsPointer = std::shared_ptr<PackedColumns>;
// The type of an operand, how many of its dimensions are its vectors', and the chain that computes its
// elements while they are packed, or null.
using Side = std::tuple<int, int, ChainPointer>;
using Sums = std::tuple<std::string, int, int64_t>;  // the model, the type and the tile of Accumulation

// An operand of a product: its axes are those of the batch, of its vectors and of the contraction.
ProductOperand product_operand(const py::array& array, const Side& side, int batch) {
    const auto& [code, vectors, prologue] = side;
    const DType dtype = dtype_code(code);
    check_itemsize(array, dtype);
    require(batch >= 0 && vectors >= 0 && batch + vectors <= array.ndim(),
            "the operand has fewer dimensions");
    require(prologue == nullptr || (prologue->inputs() == std::vector<DType>{dtype} &&
                                    prologue->output_count() == 1 && !prologue->draws()),
            "the chain does not take the operand's elements");
    return {static_cast<const char*>(array.data()),
            dtype,
            axes_of(array, 0, batch),
            axes_of(array, batch, batch + vectors),
            axes_of(array, batch + vectors, array.ndim()),
            prologue.get()};
}

bool same_sizes(const Axes& a, const Axes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Axis& x, const Axis& y) { return x.size == y.size; });
}

Accumulation accumulation_of(const Sums& sums) {
    // As Accumulate has them.
    constexpr const char* names[] = {"fma", "exact", "product_bf16", "pairs"};
    const auto& [model, type, tile] = sums;
    const Accumulation how{named<Accumulate>(names, model, "model of accumulation"), dtype_code(type),
                           tile};
    require(how.type == DType::float32 || (how.model == Accumulate::fma &&
                                           (how.type == DType::bfloat16 || how.type == DType::float16)),
            "sums are float32, or by fma bfloat16 or float16");
    require(tile >= 1, "a contraction tile has at least one element");
    return how;
}

// What a product and a convolution are but for their arrays.
struct Factors {
    Side a, b;
    DType result;
    Accumulation how;
    Numerics numerics;
    ColumnsPointer packed;
    ChainPointer epilogue;

    // The operands go together.
    void check(const ProductOperand& left, const ProductOperand& right) const {
        for (const DType t : {left.type(), right.type()})
            require(is_device_float(t) == is_device_float(result) && t != DType::float64,
                    "the types do not go together");
        const bool any = left.prologue != nullptr || right.prologue != nullptr || packed != nullptr ||
                         epilogue != nullptr;
        require(!any || is_device_float(result) || is_modulo_2_32(result),
                "chains and packed operands are not those of 64 bits or bool");
    }
    // The output's place: its axes are those of the batch to `rows`, of the rows to `columns`, and of
    // the columns; and over them lie the terms that the epilogue takes.
    ProductResult on(const py::array& output, const std::vector<py::array>& terms, int rows,
                     int columns) const {
        const auto axes = [&](const py::array& array, auto&... parts) {
            const int limits[] = {0, rows, columns, static_cast<int>(output.ndim())};
            int i = 0;
            ((parts = axes_of(array, limits[i], limits[i + 1]), ++i), ...);
        };
        ProductResult r{bytes_of(output), result, {}, {}, {}};
        axes(output, r.batch, r.rows, r.columns);
        r.epilogue = epilogue.get();
        require(epilogue == nullptr ? terms.empty()
                                    : epilogue->output_count() == 1 && !epilogue->draws() &&
                                          epilogue->inputs().size() == terms.size() + 1 &&
                                          epilogue->inputs()[0] == result,
                "the epilogue does not take the product");
        for (size_t i = 0; i < terms.size(); ++i) {
            require(shape_of(terms[i]) == shape_of(output), "the shapes differ");
            const View v = view_of(terms[i], epilogue->inputs()[i + 1]);
            r.terms.push_back({v.data, v.dtype, {}, {}, {}});
            axes(terms[i], r.terms.back().batch, r.terms.back().rows, r.terms.back().columns);
        }
        check_itemsize(output, r.stored());
        return r;
    }
};

const void* memory_of_columns(const PackedColumns& columns, const py::array& place) {
    require(is_dense(place) && static_cast<size_t>(place.nbytes()) >= columns.bytes(),
            "the packed columns have no room");
    return place.data();
}

std::vector<const void*> places_of(const ProductCall& call) {
    std::vector<const void*> data{call.a.data, call.b.data, call.result.data};
    for (const ProductTerm& t : call.result.terms) data.push_back(t.data);
    return data;
}

struct Product : Factors {
    int batch;
};

Product make_product(const Side& a, const Side& b, int batch, int result, const Sums& sums,
                     const Numerics& numerics, const ColumnsPointer& packed,
                     const ChainPointer& epilogue) {
    return {{a, b, dtype_code(result), accumulation_of(sums), numerics, packed, epilogue}, batch};
}

// `place` is where b's columns are packed in a run, or None.
std::shared_ptr<Call> product_on(const std::shared_ptr<Product>& p, const py::array& a,
                                 const py::array& b, const py::array& output,
                                 const std::vector<py::array>& terms, const py::object& place) {
    const int rows = p->batch, columns = rows + std::get<1>(p->a);
    ProductCall call{product_operand(a, p->a, p->batch),
                     product_operand(b, p->b, p->batch),
                     p->packed.get(),
                     {},
                     p->how,
                     p->numerics};
    p->check(call.a, call.b);
    require(output.ndim() == columns + std::get<1>(p->b), "the output has other dimensions");
    call.result = p->on(output, terms, rows, columns);
    require(same_sizes(call.a.batch, call.b.batch) && same_sizes(call.a.depth, call.b.depth) &&
                same_sizes(call.a.batch, call.result.batch) &&
                same_sizes(call.a.vectors, call.result.rows) &&
                same_sizes(call.b.vectors, call.result.columns),
            "the shapes do not contract");
    call.collapse();
    std::vector<const void*> data = places_of(call);
    if (p->packed != nullptr && !p->packed->are_packed())
        data.push_back(memory_of_columns(*p->packed, py::cast<py::array>(place)));
    return bound(std::move(call), data, p);
}

// Matrices whose columns are kept packed: read-only ones, which own their memory, and to which nothing
// referred beside their Array when they were packed, so that nobody can write into them until they are
// given away. They are forgotten then, and with the matrix.
std::map<PyObject*, std::pair<py::weakref, ColumnsPointer>>& kept_columns() {
    static auto* const kept = new std::map<PyObject*, std::pair<py::weakref, ColumnsPointer>>;
    return *kept;
}

// Those of the right operand, which is `matrix`; null where it may change, or is quick to pack.
ColumnsPointer columns_of(const py::array& matrix, const ProductCall& call) {
    constexpr py::ssize_t few = 1 << 12, narrow = 16;
    constexpr int references = 2;  // of the Array, and ours
    if (matrix.writeable() || !matrix.owndata() || matrix.ndim() != 2 || matrix.size() < few ||
        matrix.shape(1) < narrow || call.how.model != Accumulate::fma ||
        call.how.type != DType::float32)
        return nullptr;
    const auto known = kept_columns().find(matrix.ptr());
    if (known != kept_columns().end()) return known->second.second;
    if (matrix.ref_count() != references) return nullptr;
    auto made = std::make_shared<PackedColumns>(call.a.dtype, call.b, call.how, call.numerics,
                                                axes_size(call.a.vectors));
    made->pack(call.b);
    PyObject* const key = matrix.ptr();
    py::weakref watch(matrix,
                      py::cpp_function([key](const py::handle&) { kept_columns().erase(key); }));
    kept_columns().insert_or_assign(key, std::pair(std::move(watch), made));
    return made;
}

// The product of vectors, matrices, and as many matrices on both sides (NumPy's matmul).
class EagerProduct : public EagerCall {
public:
    EagerProduct(const py::object& dtype, const Sums& sums, const Numerics& numerics)
        : type_(dtype), how_(accumulation_of(sums)), numerics_(numerics) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array a = type_.bits(args[0]), b = type_.bits(args[count - 1]);
        if (count != 2 || !a || !b || a.ndim() < 1 || b.ndim() < 1) return nullptr;
        const py::ssize_t batch = std::max<py::ssize_t>(b.ndim() - 2, 0), rows = a.ndim() - 1;
        if (a.shape(rows) != b.shape(batch) ||
            (batch > 0 &&
             (a.ndim() != b.ndim() || !std::equal(a.shape(), a.shape() + batch, b.shape()))))
            return nullptr;
        try {
            return product(a, b, batch, rows);
        } catch (const std::bad_alloc&) {  // which the ordinary way describes
            return nullptr;
        } catch (py::error_already_set& error) {
            if (!error.matches(PyExc_MemoryError)) throw;
            return nullptr;
        }
    }

private:
    PyObject* product(const py::array& a, const py::array& b, py::ssize_t batch,
                      py::ssize_t rows) const {
        std::vector<int64_t> shape(a.shape(), a.shape() + rows);
        shape.insert(shape.end(), b.shape() + batch + 1, b.shape() + b.ndim());
        py::array output = type_.empty(shape);
        const auto operand = [&](const py::array& x, Axes vectors, Axes depth) {
            return ProductOperand{static_cast<const char*>(x.data()),
                                  type_.code,
                                  axes_of(x, 0, batch),
                                  std::move(vectors),
                                  std::move(depth),
                                  nullptr};
        };
        ProductCall call{
            operand(a, axes_of(a, batch, rows), axes_of(a, rows, rows + 1)),
            operand(b, axes_of(b, batch + 1, b.ndim()), axes_of(b, batch, batch + 1)),
            nullptr,
            {static_cast<char*>(output.mutable_data()), type_.code, axes_of(output, 0, batch),
             axes_of(output, batch, rows), axes_of(output, rows, output.ndim())},
            how_,
            numerics_};
        const ColumnsPointer columns = columns_of(b, call);
        call.packed = columns.get();
        run_eagerly(output.size() * b.shape(batch), [&] { call.run({}); });
        return type_.array(output);
    }

    const ArrayDType type_;
    const Accumulation how_;
    const Numerics numerics_;
};

// Arrays come with their axes in the order of neuronsim::Convolution; a row of the window is (size,
// stride, padding below, base dilation, window dilation, reversal).
using ConvolutionWindow = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool>>;

struct Convolving : Factors {
    ConvolutionWindow window;
    int64_t feature_groups, batch_groups;
    int32_t padding;
};

Convolution shape_of_convolution(const Convolving& c, const py::array& x, const py::array& w,
                                 const py::array& output) {
    const int rank = static_cast<int>(c.window.size());
    const int64_t groups = c.feature_groups * c.batch_groups, features = w.shape(rank + 1);
    Convolution shape{{},
                      c.feature_groups,
                      c.batch_groups,
                      x.shape(0) / c.batch_groups,
                      x.shape(rank + 1) / c.feature_groups,
                      features / groups,
                      c.padding};
    for (int d = 0; d < rank; ++d) {
        const auto& [size, stride, padding, base, dilation, reversed] = c.window[d];
        require(size >= 1 && stride >= 1 && base >= 1 && dilation >= 1 && size == w.shape(d),
                "the window is not the kernel's");
        shape.spatial.push_back(
            {x.shape(d + 1), output.shape(d + 1), size, stride, padding, base, dilation, reversed});
    }
    require(shape.batch * c.batch_groups == x.shape(0) && shape.batch == output.shape(0) &&
                shape.input_features * c.feature_groups == x.shape(rank + 1) &&
                shape.input_features == w.shape(rank) && shape.output_features * groups == features &&
                output.shape(rank + 1) == features,
            "the features or samples do not fit");
    return shape;
}

Convolving make_convolution(const std::pair<int, ChainPointer>& x,
                            const std::pair<int, ChainPointer>& w, const ConvolutionWindow& window,
                            int64_t feature_groups, int64_t batch_groups, int result, const Sums& sums,
                            const Numerics& numerics, const ColumnsPointer& packed,
                            const ChainPointer& epilogue, int32_t padding) {
    require(feature_groups >= 1 && batch_groups >= 1 && (feature_groups == 1 || batch_groups == 1),
            "one kind of groups at a time");
    require(packed == nullptr || packed->are_packed(),
            "a convolution's columns are packed before it runs");
    const int rank = static_cast<int>(window.size());
    return {{{x.first, rank + 1, x.second},
             {w.first, 0, w.second},
             dtype_code(result),
             accumulation_of(sums),
             numerics,
             packed,
             epilogue},
            window,
            feature_groups,
            batch_groups,
            padding};
}

std::shared_ptr<Call> convolution_on(const std::shared_ptr<Convolving>& c, const py::array& x,
                                     const py::array& w, const py::array& output,
                                     const std::vector<py::array>& terms) {
    const int rank = static_cast<int>(c->window.size());
    require(x.ndim() == rank + 2 && w.ndim() == rank + 2 && output.ndim() == rank + 2,
            "the arrays have other dimensions than the window");
    const ProductOperand input = product_operand(x, c->a, 0);
    ProductOperand kernel = product_operand(w, c->b, 0);
    c->check(input, kernel);
    require(c->padding == 0 || (!is_device_float(input.type()) && storage_bytes(input.type()) == 1 &&
                                is_modulo_2_32(c->result)),
            "only bytes are padded with another number than zero");
    const Convolution shape = shape_of_convolution(*c, x, w, output);
    const int64_t groups = c->feature_groups * c->batch_groups;
    // A group's features are its columns.
    const auto grouped = [&](Axes& batch, Axes& columns, int64_t stride) {
        batch = {{groups, shape.output_features * stride}};
        columns = {{shape.output_features, stride}};
    };
    grouped(kernel.batch, kernel.vectors, kernel.depth.back().stride);
    kernel.depth = axes_of(w, 0, rank + 1);
    ProductResult result = c->on(output, terms, 0, rank + 1);
    grouped(result.batch, result.columns, output.strides(rank + 1));
    for (ProductTerm& t : result.terms) grouped(t.batch, t.columns, t.columns[0].stride);
    ConvolutionCall call{{input, kernel, c->packed.get(), result, c->how, c->numerics}, shape};
    const std::vector<const void*> data = places_of(call);
    return bound(std::move(call), data, c);
}

ColumnsPointer make_columns(int a, const py::array& b, const Side& side, int batch, const Sums& sums,
                            const Numerics& numerics, int64_t rows, bool packs) {
    const ProductOperand operand = product_operand(b, side, batch);
    const Accumulation how = accumulation_of(sums);
    const DType type = dtype_code(a);
    const py::gil_scoped_release released;
    auto made = std::make_shared<PackedColumns>(type, operand, how, numerics, rows);
    if (packs) made->pack(operand);
    return made;
}

// What the columns will be packed of, and where, in a run.
std::shared_ptr<Call> columns_on(const ColumnsPointer& columns, const py::array& b, const Side& side,
                                 int batch, const py::array& place) {
    const ProductOperand operand = product_operand(b, side, batch);
    const void* const memory = memory_of_columns(*columns, place);
    return bound(PackCall{operand, *columns}, {operand.data, memory}, std::get<ChainPointer>(side));
}

}  // namespace

void forget_columns(PyObject* data) {
    if (kept_columns().empty()) return;
    const auto& api = py::detail::npy_api::get();
    for (; data != nullptr && api.PyArray_Check_(data); data = py::detail::array_proxy(data)->base)
        kept_columns().erase(data);
}

void add_products(py::module_& m) {
    const py::arg result("result"), sums("sums"), numerics("numerics");
    const py::arg side("side"), batch("batch"), output("output");
    const py::arg_v terms("terms", std::vector<py::array>());
    py::class_<PackedColumns, ColumnsPointer>(m, "PackedColumns")
        .def_property_readonly("nbytes", &PackedColumns::bytes)
        .def(py::init(&make_columns), py::arg("a_dtype"), py::arg("b"), side, batch, sums, numerics,
             py::arg("rows"), py::arg("packs") = true)
        .def("on", &columns_on, py::arg("b"), side, batch, py::arg("place"), Keeps<2, 5>());
    py::class_<Product, std::shared_ptr<Product>>(m, "Product")
        .def(py::init(&make_product), py::arg("a"), py::arg("b"), batch, result, sums, numerics,
             py::arg("packed") = nullptr, py::arg("epilogue") = nullptr)
        .def("on", &product_on, py::arg("a"), py::arg("b"), output, terms,
             py::arg("columns") = py::none(), Keeps<2, 3, 4, 5, 6>());
    EagerClass<EagerProduct>(m, "EagerProduct")
        .def(py::init<py::object, Sums, Numerics>(), py::arg("dtype"), sums, numerics);
    py::class_<Convolving, std::shared_ptr<Convolving>>(m, "Convolution")
        .def(py::init(&make_convolution), py::arg("x"), py::arg("w"), py::arg("window"),
             py::arg("feature_groups"), py::arg("batch_groups"), result, sums, numerics,
             py::arg("packed") = nullptr, py::arg("epilogue") = nullptr, py::arg("padding") = 0)
        .def("on", &convolution_on, py::arg("x"), py::arg("w"), output, terms, Keeps<2, 3, 4, 5>());
}

}  // namespace neuronsim
