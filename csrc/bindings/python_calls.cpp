#include "bindings/python_calls.h"

#include <utility>

#include "bindings/views.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

class PythonCall : public Call {
public:
    // Whether the function is called, from the first input and the call's records, which may be null.
    using IsDue = std::function<bool(const char* first, Observed* records)>;

    PythonCall(py::object function, const std::vector<py::array>& inputs,
               const std::vector<py::array>& outputs, IsDue is_due = {})
        : function_(std::move(function)), input_count_(inputs.size()), is_due_(std::move(is_due)) {
        for (const auto* arrays : {&inputs, &outputs})
            for (const py::array& a : *arrays) {
                arrays_.push_back({a.dtype(), shape_of(a), strides_of(a)});
                at_.emplace_back(a.data());
            }
    }
    void run(const Run& run) const override {
        if (is_due_ && !is_due_(at(run, 0), records(run))) return;
        const py::gil_scoped_acquire acquired;
        const py::handle context(static_cast<PyObject*>(run.context));
        py::list inputs, outputs;
        for (size_t i = 0; i < arrays_.size(); ++i) {
            const Array& a = arrays_[i];
            // With a base, pybind11 copies nothing.
            (i < input_count_ ? inputs : outputs)
                .append(py::array(a.dtype, a.shape, a.strides, at(run, i), context));
        }
        function_(context, inputs, outputs);
    }

private:
    struct Array {
        py::dtype dtype;
        std::vector<int64_t> shape, strides;
    };
    const py::object function_;
    const size_t input_count_;
    const IsDue is_due_;
    std::vector<Array> arrays_;
};

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

std::shared_ptr<Call> python_call(py::object function, const std::vector<py::array>& inputs,
                                  const std::vector<py::array>& outputs) {
    return std::make_shared<PythonCall>(std::move(function), inputs, outputs);
}
std::shared_ptr<Call> inspection(py::object function, const std::vector<py::array>& inputs, DType dtype,
                                 bool zeros) {
    const int64_t count = inputs.at(0).size();
    require(is_device_float(dtype), "only floats are inspected");
    check_itemsize(inputs[0], dtype);
    return std::make_shared<PythonCall>(
        std::move(function), inputs, std::vector<py::array>(),
        [=](const char* first, const Observed*) { return has_special(dtype, first, count, zeros); });
}
std::shared_ptr<Call> sums_inspection(py::object function, const std::vector<py::array>& inputs) {
    return std::make_shared<PythonCall>(std::move(function), inputs, std::vector<py::array>(),
                                        [](const char*, Observed* sums) {
                                            if (sums == nullptr || sums->overflow == 0) return false;
                                            sums->overflow = 0;
                                            return true;
                                        });
}

thread_local constinit PyObject* context_of_thread = nullptr;

// In other threads than the main one Python's own check does nothing. The pool's are not Python's.
void check_signals() {
    if (PyGILState_GetThisThreadState() == nullptr || is_finalizing()) return;
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (context_of_thread != nullptr) py::handle(context_of_thread).attr("check")();
}

}  // namespace neuronsim
