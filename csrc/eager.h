// The short way of eager arrays from Python, for which small arrays do not have to wait.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "formats.h"

namespace neuronsim {

// A new ndarray of the type's storage.
pybind11::array empty_array(DType dtype, int ndim, const Py_intptr_t* shape);

// Adds ArrayBase, run_dense and run_binary to the module.
void add_eager(pybind11::module_& m);

}  // namespace neuronsim
