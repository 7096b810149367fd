// Kernels as Python has them: bound to arrays they are calls.
#pragma once

#include <vector>

#include "bindings/views.h"
#include "graph/call.h"

namespace neuronsim {

// A bound call in Python keeps the arguments of these numbers, its arrays: an executable that takes it
// over only keeps the call.
template <size_t... Arguments>
struct Keeps {};

// Adds `on`, which binds a kernel to arrays.
template <class Class, class Kernel, class... Operands, size_t... Kept, class... Names>
void add_kernel(Class& kernel, Bound<Kernel> (*bind)(Operands...), Keeps<Kept...> keeps,
                const Names&... names) {
    kernel.def(
        "on", [bind](Operands... operands) { return call_of(bind(operands...)); }, names..., keeps);
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
