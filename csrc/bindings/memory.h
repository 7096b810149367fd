// New ndarrays for results. Those of some size begin with a cache line, so that no vector of them lies
// on two, in blocks that are kept when they are freed: the system gives fresh memory only page by
// page, zeroed, which costs as much as computing on it.
#pragma once

#include <pybind11/numpy.h>

#include "formats/formats.h"

namespace neuronsim {

// A new ndarray of the type's storage, its elements undefined. Throws std::bad_alloc.
pybind11::array empty_array(DType dtype, int ndim, const Py_intptr_t* shape);

}  // namespace neuronsim
