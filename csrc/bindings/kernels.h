// Kernels as Python has them: bound to arrays they are calls.
#pragma once

#include <stdexcept>
#include <vector>

#include "bindings/views.h"
#include "graph/call.h"

namespace neuronsim {

// A bound call in Python keeps the arguments of these numbers, its arrays: an executable that takes it
// over only keeps the call.
template <size_t... Arguments>
struct Keeps {};

// Runs a kernel on the arrays that it was bound to. Throws std::invalid_argument where ids are missing.
template <class Kernel>
void run_at_once(const Bound<Kernel>& bound, uint64_t seed, const std::vector<uint64_t>& ids,
                 const pybind11::object& records) {
    if (ids.size() < draws_of(bound.kernel))
        throw std::invalid_argument("stochastic rounding needs an id for each rounding");
    Observed* const observed = records_in(records, records_of(bound.kernel));
    std::vector<char*> places;
    for (const void* p : bound.data) places.push_back(static_cast<char*>(const_cast<void*>(p)));
    const pybind11::gil_scoped_release released;
    run_kernel(bound.kernel, places.data(), {seed, ids.empty() ? nullptr : ids.data()}, observed);
}

// Adds `on`, which binds a kernel to arrays, and the call of the kernel, which runs it there at once.
template <class Class, class Kernel, class... Operands, size_t... Kept, class... Names>
void add_kernel(Class& kernel, Bound<Kernel> (*bind)(Operands...), Keeps<Kept...> keeps,
                const Names&... names) {
    namespace py = pybind11;
    kernel.def(
        "on", [bind](Operands... operands) { return call_of(bind(operands...)); }, names..., keeps);
    kernel.def(
        "__call__",
        [bind](Operands... operands, uint64_t seed, const std::vector<uint64_t>& ids,
               const py::object& records) { run_at_once(bind(operands...), seed, ids, records); },
        names..., py::arg("seed") = 0, py::arg("ids") = std::vector<uint64_t>(),
        py::arg("records") = py::none());
}

}  // namespace neuronsim

template <size_t... Arguments>
struct pybind11::detail::process_attribute<neuronsim::Keeps<Arguments...>>
    : pybind11::detail::process_attribute_default<neuronsim::Keeps<Arguments...>> {
    static void precall(function_call&) {}
    static void postcall(function_call& call, handle made) {
        (keep_alive_impl(0, Arguments, call, made), ...);
    }
};
