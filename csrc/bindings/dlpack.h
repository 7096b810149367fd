// DLPack's capsules: arrays that other libraries read in place, and theirs that we read.
#pragma once

#include <pybind11/pybind11.h>

namespace neuronsim {

// Adds dlpack_capsule and dlpack_array to the module.
void add_dlpack(pybind11::module_& m);

}  // namespace neuronsim
