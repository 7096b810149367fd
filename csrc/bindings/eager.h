// The short way of eager arrays from Python, for which small arrays do not have to wait.
#pragma once

#include <pybind11/pybind11.h>

namespace neuronsim {

// Adds BitsBase, ArrayBase, Elementwise, ElementwiseMethod and run_dense to the module.
void add_eager(pybind11::module_& m);

}  // namespace neuronsim
