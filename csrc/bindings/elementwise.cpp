#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/eager.h"
#include "bindings/memory.h"
#include "bindings/views.h"
#include "elementwise/chain.h"

namespace py = pybind11;

namespace neuronsim {

namespace {

using ArrayProxy = py::detail::PyArray_Proxy;

// A new array of a program's output, which `run(elements, data)` fills.
template <class Run>
PyObject* filled(const Chain& program, int rank, const Py_intptr_t* shape, const Run& run) {
    py::array result = empty_array(program.output_dtype(0), rank, shape);
    char* const output = static_cast<char*>(result.mutable_data());
    run_eagerly(result.size(), [&] { run(result.size(), output); });
    return result.release().ptr();
}

constexpr Py_ssize_t most_operands = 3;

// A row of operations that are done element by element, on operands that broadcast and Python's
// numbers.
class EagerChain : public EagerCall {
public:
    // The types of the result and of the operands; programs that round Python's numbers to the last
    // operand's type, or null.
    EagerChain(const py::object& result, const std::vector<py::object>& types,
               std::shared_ptr<Chain> chain, std::shared_ptr<Chain> of_float,
               std::shared_ptr<Chain> of_integer)
        : result_(result),
          types_(types.begin(), types.end()),
          chain_(std::move(chain)),
          of_float_(std::move(of_float)),
          of_integer_(std::move(of_integer)) {
        require(chain_->inputs().size() == types_.size() && chain_->output_count() == 1 &&
                    types_.size() <= most_operands,
                "an operation's chain takes its operands");
    }
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override;

private:
    bool read_number(PyObject* x, DType type, uint64_t* element) const;

    const ArrayDType result_;
    const std::vector<ArrayDType> types_;
    const std::shared_ptr<Chain> chain_, of_float_, of_integer_;
};

// A Python number as an element of the program's type, rounded once (C1, C8); false where the ordinary
// way must see it.
bool EagerChain::read_number(PyObject* x, DType type, uint64_t* element) const {
    const auto convert = [&](const std::shared_ptr<Chain>& program, const void* number) {
        if (program == nullptr) return false;
        const auto* const input = static_cast<const char*>(number);
        auto* const output = reinterpret_cast<char*>(element);
        program->run_dense(1, &input, &output);
        return true;
    };
    if (PyFloat_CheckExact(x)) {
        const double number = PyFloat_AS_DOUBLE(x);
        return convert(of_float_, &number);
    }
    if (!PyLong_CheckExact(x) && !PyBool_Check(x)) return false;
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow != 0) return false;
    constexpr int64_t exact = int64_t{1} << 53;
    if (is_device_float(type) && (number > exact || number < -exact)) return false;
    const int spare = 64 - 8 * storage_bytes(type);
    if (is_signed_integer(type) && (number << spare) >> spare != number) return false;
    const auto word = static_cast<uint64_t>(number);
    if (is_unsigned_integer(type) && (number < 0 || (word << spare) >> spare != word)) return false;
    return convert(of_integer_, &number);
}

// The operands of a program. Owned, since another thread may replace them while this one computes.
struct Operands {
    py::object arrays[most_operands];
    uint64_t numbers[most_operands];
    Py_ssize_t count = 0;
    const ArrayProxy* first = nullptr;
    bool is_dense = true;  // all arrays, and of one shape

    const ArrayProxy* array(Py_ssize_t i) const {
        return arrays[i] ? py::detail::array_proxy(arrays[i].ptr()) : nullptr;
    }
    void add(PyObject* data) {
        arrays[count++] = py::reinterpret_borrow<py::object>(data);
        const auto* a = py::detail::array_proxy(data);
        if (first == nullptr) first = a;
        is_dense = is_dense && (a->flags & py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_) != 0 &&
                   std::equal(first->dimensions, first->dimensions + first->nd, a->dimensions,
                              a->dimensions + a->nd);
    }
};

// Room for so many copies of a number: the few elements of a small array are read as they lie.
constexpr int64_t few_copies = 64;

// The common shape of the arrays; false where they do not broadcast.
bool broadcast_shape(const Operands& operands, std::vector<int64_t>& shape) {
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const auto* a = operands.array(i);
        if (a == nullptr) continue;
        const auto rank = static_cast<size_t>(a->nd);
        if (rank > shape.size()) shape.insert(shape.begin(), rank - shape.size(), 1);
        int64_t* const last = shape.data() + (shape.size() - rank);
        for (size_t d = 0; d < rank; ++d) {
            if (last[d] == 1) last[d] = a->dimensions[d];
            if (a->dimensions[d] != 1 && a->dimensions[d] != last[d]) return false;
        }
    }
    int64_t n = 1;
    for (const int64_t length : shape)
        if (__builtin_mul_overflow(n, length, &n)) return false;
    return true;
}

std::vector<View> broadcast_views(const Chain& program, const Operands& operands,
                                  const std::vector<int64_t>& shape) {
    std::vector<View> views;
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const DType type = program.inputs()[i];
        const auto* a = operands.array(i);
        const char* const data = a ? a->data : reinterpret_cast<const char*>(&operands.numbers[i]);
        views.push_back({data, type, {}});
        Axes& axes = views.back().axes;
        for (const int64_t n : shape) axes.push_back({n, 0});
        for (int d = 0; a != nullptr && d < a->nd; ++d)
            if (a->dimensions[d] != 1)
                axes[shape.size() - static_cast<size_t>(a->nd - d)].stride = a->strides[d];
    }
    return views;
}

// The output of a program, or nullptr where the operands do not broadcast.
PyObject* run_broadcast(const Chain& program, const Operands& operands) {
    std::vector<int64_t> shape;
    if (!broadcast_shape(operands, shape)) return nullptr;
    const std::vector<View> views = broadcast_views(program, operands, shape);
    const std::vector<Py_intptr_t> dimensions(shape.begin(), shape.end());
    const char* inputs[most_operands];
    for (size_t i = 0; i < views.size(); ++i) inputs[i] = views[i].data;
    const Layout layout(element_count(shape), views);
    return filled(program, static_cast<int>(dimensions.size()), dimensions.data(),
                  [&](int64_t, char* output) { program.run_laid_out(layout, inputs, &output); });
}

PyObject* run_operands(const Chain& program, const Operands& operands) {
    const auto* first = operands.first;
    int64_t n = 1;
    for (int d = 0; d < first->nd; ++d) n *= first->dimensions[d];
    const bool has_numbers =
        std::any_of(operands.arrays, operands.arrays + operands.count, [](auto& x) { return !x; });
    if (!operands.is_dense || (has_numbers && n > few_copies)) return run_broadcast(program, operands);
    uint64_t copies[most_operands][few_copies];
    const char* inputs[most_operands];
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const auto* a = operands.array(i);
        inputs[i] = a ? a->data : reinterpret_cast<const char*>(copies[i]);
        if (a != nullptr) continue;
        const int size = storage_bytes(program.inputs()[i]);
        for (int64_t k = 0; k < n; ++k)
            std::memcpy(reinterpret_cast<char*>(copies[i]) + k * size, &operands.numbers[i], size);
    }
    return filled(program, first->nd, first->dimensions,
                  [&](int64_t count, char* output) { program.run_dense(count, inputs, &output); });
}

PyObject* EagerChain::run(PyObject* const* args, Py_ssize_t count) const {
    // A conversion has the type to convert to behind its operand.
    const auto operand_count = static_cast<Py_ssize_t>(types_.size());
    const bool has_target = Py_TYPE(args[count - 1]) == Py_TYPE(result_.dtype.ptr());
    if (count != operand_count + has_target) return nullptr;
    Operands operands;
    for (Py_ssize_t i = 0; i < operand_count; ++i) {
        const ArrayDType& type = types_[i];
        const py::array x = type.bits(args[i]);
        if (x) operands.add(x.ptr());
        else if (!read_number(args[i], type.code, &operands.numbers[operands.count++])) return nullptr;
    }
    if (operands.first == nullptr) return nullptr;
    const auto data = py::reinterpret_steal<py::array>(run_operands(*chain_, operands));
    return data ? result_.array(data) : nullptr;
}

}  // namespace

void add_elementwise(py::module_& m) {
    EagerClass<EagerChain>(m, "EagerChain")
        .def(py::init<py::object, std::vector<py::object>, std::shared_ptr<Chain>,
                      std::shared_ptr<Chain>, std::shared_ptr<Chain>>(),
             py::arg("result"), py::arg("types"), py::arg("chain").none(false), py::arg("of_float"),
             py::arg("of_integer"));
}

}  // namespace neuronsim
