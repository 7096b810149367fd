// The short way of eager arrays from Python, for which small arrays do not have to wait.
#pragma once

#include <pybind11/pybind11.h>

namespace neuronsim {

// Adds ArrayBase, run_dense and run_binary to the module.
void add_eager(pybind11::module_& m);

}  // namespace neuronsim
