#include "bindings/python_calls.h"

#include <stdexcept>
#include <utility>

#include "bindings/views.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

class PythonCall : public Call {
public:
    PythonCall(py::object function, const std::vector<py::array>& inputs,
               const std::vector<py::array>& outputs)
        : function_(std::move(function)) {
        for (const py::array& a : inputs) inputs_.push_back(described(a));
        for (const py::array& a : outputs) outputs_.push_back(described(a));
    }
    void place(const std::vector<Standin>& standins) override {
        for (Array& a : inputs_) a.at.place(standins);
        for (Array& a : outputs_) a.at.place(standins);
    }
    void run(const Run& run) const override {
        if (!is_due(run)) return;
        const py::gil_scoped_acquire acquired;
        const py::handle context(static_cast<PyObject*>(run.context));
        const auto arrays = [&](const std::vector<Array>& described) {
            py::list list;
            for (const Array& a : described)
                // With a base, pybind11 copies nothing.
                list.append(py::array(a.dtype, a.shape, a.strides, a.at.in(run.memories), context));
            return list;
        };
        function_(context, arrays(inputs_), arrays(outputs_));
    }

protected:
    virtual bool is_due(const Run&) const { return true; }
    const char* input(const Run& run, size_t i) const { return inputs_[i].at.in(run.memories); }

private:
    struct Array {
        py::dtype dtype;
        std::vector<int64_t> shape, strides;
        Address at;
    };
    static Array described(const py::array& a) {
        return {a.dtype(), shape_of(a), strides_of(a), Address(a.data())};
    }
    const py::object function_;
    std::vector<Array> inputs_, outputs_;
};

class Inspection : public PythonCall {
public:
    Inspection(py::object function, const std::vector<py::array>& inputs, DType dtype, bool zeros)
        : PythonCall(std::move(function), inputs, {}),
          dtype_(dtype),
          count_(static_cast<int64_t>(inputs.at(0).size())),
          zeros_(zeros) {
        if (!is_device_float(dtype)) throw std::invalid_argument("only floats are inspected");
        check_itemsize(inputs[0], dtype);
    }

protected:
    bool is_due(const Run& run) const override {
        return run.observed != nullptr && has_special(dtype_, input(run, 0), count_, zeros_);
    }

private:
    DType dtype_;
    int64_t count_;
    bool zeros_;
};

class SumsInspection : public PythonCall {
public:
    using PythonCall::PythonCall;

protected:
    bool is_due(const Run& run) const override {
        Observed* const sums = records(run);
        if (sums == nullptr || sums->overflow == 0) return false;
        sums->overflow = 0;
        return true;
    }
};

thread_local PyObject* context_of_thread = nullptr;

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
    return std::make_shared<Inspection>(std::move(function), inputs, dtype, zeros);
}
std::shared_ptr<Call> sums_inspection(py::object function, const std::vector<py::array>& inputs) {
    return std::make_shared<SumsInspection>(std::move(function), inputs, std::vector<py::array>());
}

ContextOfThread::ContextOfThread(PyObject* context) : outer_(context_of_thread) {
    context_of_thread = context;
}
ContextOfThread::~ContextOfThread() { context_of_thread = outer_; }

// In other threads than the main one Python's own check does nothing. The pool's are not Python's.
void check_signals() {
    if (PyGILState_GetThisThreadState() == nullptr || is_finalizing()) return;
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (context_of_thread != nullptr) py::handle(context_of_thread).attr("check")();
}

}  // namespace neuronsim
