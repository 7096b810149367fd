// What each file of the bindings adds to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace neuronsim {

void add_array_types(pybind11::module_& m);  // BitsBase and ArrayBase
void add_chains(pybind11::module_& m);       // Chain
void add_dlpack(pybind11::module_& m);       // dlpack_capsule and dlpack_array
void add_doors(pybind11::module_& m);        // Door and DoorMethod
void add_eager(pybind11::module_& m);        // EagerCall and EagerCache
void add_elementwise(pybind11::module_& m);  // EagerChain
void add_executable(pybind11::module_& m);   // what records other steps than kernels, Executable
void add_machine(pybind11::module_& m);      // instruction sets, threads, how fast the processor is
void add_products(pybind11::module_& m);     // products and convolutions
void add_reductions(pybind11::module_& m);   // reductions, windows, scatter, sort
void add_steps(pybind11::module_& m);        // Call, and kernels bound to arrays

}  // namespace neuronsim
