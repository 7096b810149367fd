// Kernels as Python has them: bound to arrays they are calls.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/views.h"
#include "graph/call.h"

namespace neuronsim {

// A bound call in Python keeps the arguments of these numbers, its arrays: an executable that takes it
// over only keeps the call.
template <size_t... Arguments>
struct Keeps {};

// What a call that runs alone draws from; throws std::invalid_argument where ids are missing.
inline Draws draws_of(uint64_t seed, const std::vector<uint64_t>& ids, size_t count) {
    if (ids.size() < count)
        throw std::invalid_argument("stochastic rounding needs an id for each rounding");
    return {seed, ids.empty() ? nullptr : ids.data()};
}

template <class Kernel>
void run_at_once(const Bound<Kernel>& bound, uint64_t seed = 0, const std::vector<uint64_t>& ids = {},
                 const pybind11::object& records = pybind11::none()) {
    const Draws draws = draws_of(seed, ids, draws_of(bound.kernel));
    Observed* const observed = records_in(records, records_of(bound.kernel));
    constexpr size_t few = 8;
    char* some[few];
    std::vector<char*> many(bound.data.size() > few ? bound.data.size() : 0);
    char** const places = many.empty() ? some : many.data();
    for (size_t i = 0; i < bound.data.size(); ++i)
        places[i] = static_cast<char*>(const_cast<void*>(bound.data[i]));
    const pybind11::gil_scoped_release released;
    run_kernel(bound.kernel, places, draws, observed);
}

// Adds `on`, which binds a kernel to arrays, and the call of the kernel, which runs it there at once:
// what small arrays feel is tried first.
template <class Class, class Kernel, class... Operands, size_t... Kept, class... Names>
void add_kernel(Class& kernel, Bound<Kernel> (*bind)(Operands...), Keeps<Kept...> keeps,
                const Names&... names) {
    namespace py = pybind11;
    kernel.def(
        "on", [bind](Operands... operands) { return call_of(bind(operands...)); }, names..., keeps);
    kernel.def("__call__", [bind](Operands... operands) { run_at_once(bind(operands...)); }, names...);
    kernel.def(
        "__call__",
        [bind](Operands... operands, uint64_t seed, const std::vector<uint64_t>& ids,
               const py::object& records) { run_at_once(bind(operands...), seed, ids, records); },
        names..., py::arg("seed"), py::arg("ids"), py::arg("records") = py::none());
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
