#include "graph/executable.h"

#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/kernels.h"
#include "bindings/python_calls.h"
#include "bindings/views.h"
#include "graph/control.h"
#include "machine/interrupt.h"
#include "movement/copy.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

using Index = std::pair<py::array, int>;
Scalar scalar(const Index& index) {
    const auto& [array, code] = index;
    const DType dtype = dtype_code(code);
    check_itemsize(array, dtype);
    require(array.size() == 1, "an index is one element");
    return {static_cast<const char*>(array.data()), dtype};
}

char* data_of(py::array array) { return static_cast<char*>(array.mutable_data()); }

Copy copy_of(const py::array& source, const py::array& target, const py::array& shape) {
    require(source.itemsize() == target.itemsize(), "the arrays of a copy differ");
    Copy copy{{}, static_cast<int64_t>(source.itemsize())};
    for (py::ssize_t d = 0; d < shape.ndim(); ++d)
        copy.axes.push_back({shape.shape(d), source.strides(d), target.strides(d)});
    return copy;
}

std::shared_ptr<Call> record_copy(const py::array& source, const py::array& target) {
    require(shape_of(source) == shape_of(target), "the arrays of a copy differ");
    return bound(CopyCall{simplified(copy_of(source, target, target))},
                 {source.data(), data_of(target)});
}

Starts starts_of(const py::array& moving, const py::array& part, const std::vector<Index>& indices,
                 const std::vector<int64_t>& limits) {
    require(indices.size() == limits.size() &&
                static_cast<py::ssize_t>(limits.size()) == moving.ndim() &&
                moving.ndim() == part.ndim() && moving.itemsize() == part.itemsize(),
            "a dynamic slice has an index for each dimension");
    Starts starts;
    for (size_t d = 0; d < indices.size(); ++d) {
        starts.push_back({scalar(indices[d]), limits[d], moving.strides(static_cast<py::ssize_t>(d))});
        require(is_integer(starts.back().at.dtype), "an index is an integer");
    }
    return starts;
}

std::shared_ptr<Call> record_dynamic_copy(const py::array& source, const py::array& target,
                                          const std::vector<Index>& indices,
                                          const std::vector<int64_t>& limits, bool moves_source) {
    const py::array& moving = moves_source ? source : target;
    const py::array& part = moves_source ? target : source;
    return dynamic_copy_call(copy_of(source, target, part), source.data(), data_of(target),
                             starts_of(moving, part, indices, limits), moves_source);
}

std::shared_ptr<Call> record_window(const py::array& array, const py::array& part,
                                    const std::vector<Index>& indices,
                                    const std::vector<int64_t>& limits) {
    return window_call(static_cast<const char*>(array.data()), static_cast<const char*>(part.data()),
                       starts_of(array, part, indices, limits));
}

std::shared_ptr<Call> record_while(const Schedule& condition, const py::array& goes_on,
                                   const Schedule& body, const py::array& trips) {
    check_itemsize(trips, DType::int64);
    const char* const asked = scalar({goes_on, static_cast<int>(DType::boolean)}).data;
    return while_call(condition, asked, body, data_of(trips));
}

using CounterRow = std::tuple<py::array, int64_t, int64_t>;  // array, start, step
std::shared_ptr<Call> record_count(int64_t count, const std::vector<CounterRow>& rows,
                                   const Schedule& body, const py::array& trips) {
    check_itemsize(trips, DType::int64);
    std::vector<Counter> counters;
    for (const auto& [array, start, step] : rows) {
        check_itemsize(array, DType::int32);
        counters.push_back({data_of(array), start, step});
    }
    return count_call(count, std::move(counters), body, data_of(trips));
}

using StandinRow = std::tuple<py::array, size_t, int64_t>;  // array, memory, offset
Executable make_executable(const Schedule& schedule, const std::vector<StandinRow>& rows,
                           size_t records, size_t windows) {
    std::vector<Standin> standins;
    for (const auto& [array, memory, offset] : rows)
        standins.push_back({static_cast<const char*>(array.data()), memory, offset});
    return Executable(schedule, std::move(standins), records, windows);
}

// `records` receives what the calls met, a row for each record, or is None.
std::vector<int64_t> run_executable(const Executable& executable, const std::vector<py::array>& arrays,
                                    const py::object& context, bool timed, const py::object& records) {
    std::vector<char*> memories;
    for (const py::array& a : arrays) memories.push_back(bytes_of(a));
    Observed* const observed = records_in(records, executable.records());
    const Scoped stoppable(context_of_thread, context.ptr());
    const py::gil_scoped_release released;
    return executable.run(memories, context.ptr(), observed, timed);
}

}  // namespace

void add_executable(py::module_& m) {
    set_signal_check(&check_signals);
    m.def("record_copy", &record_copy, Keeps<1, 2>());
    m.def("record_dynamic_copy", &record_dynamic_copy);
    m.def("record_window", &record_window);
    m.def("record_python", &python_call);
    m.def("record_inspection",
          [](py::object function, const std::vector<py::array>& inputs, int dtype, bool zeros) {
              return inspection(std::move(function), inputs, dtype_code(dtype), zeros);
          });
    m.def("record_sums_inspection", &sums_inspection);
    m.def("record_while", &record_while);
    m.def("record_count", &record_count);
    m.def("record_conditional", [](const Index& index, const std::vector<Schedule>& branches) {
        return conditional_call(scalar(index), branches);
    });
    py::class_<Executable>(m, "Executable")
        .def(py::init(&make_executable), py::arg("steps"), py::arg("standins"), py::arg("records") = 0,
             py::arg("windows") = 0)
        .def("run", &run_executable, py::arg("memories"), py::arg("context"), py::arg("timed"),
             py::arg("records") = py::none());
}

}  // namespace neuronsim
