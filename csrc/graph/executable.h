// A compiled graph: a flat list of steps on memory that is planned beforehand, run without the
// interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace neuronsim {

// Adds Step, the functions that record steps, and Executable to the module.
void add_executable(pybind11::module_& m);

}  // namespace neuronsim
