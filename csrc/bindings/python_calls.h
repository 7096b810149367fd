// Calls of Python functions: what has no kernel for strided memory, and what looks at results.
#pragma once

#include <pybind11/numpy.h>

#include <memory>
#include <vector>

#include "formats/formats.h"
#include "graph/call.h"

namespace neuronsim {

// A function of (context, inputs, outputs).
std::shared_ptr<Call> python_call(pybind11::object function, const std::vector<pybind11::array>& inputs,
                                  const std::vector<pybind11::array>& outputs);
// Says what an earlier call met. It is due if the first input, that call's result in dense memory, has
// Inf, NaN or, where asked for, a zero.
std::shared_ptr<Call> inspection(pybind11::object function, const std::vector<pybind11::array>& inputs,
                                 DType dtype, bool zeros);
// The same for a product's sums, which only its epilogue saw: due if their record says that some are
// Inf or NaN. The function takes over what that says.
std::shared_ptr<Call> sums_inspection(pybind11::object function,
                                      const std::vector<pybind11::array>& inputs);

// Looks for signals in the main thread, and asks the context of the program that this thread runs, if
// any: its `check` may end the run, as another replica's failure does.
void check_signals();
extern thread_local constinit PyObject* context_of_thread;

}  // namespace neuronsim
