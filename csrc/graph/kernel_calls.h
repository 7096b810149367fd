// The kernels as calls with placed memory. `kept` are the programs and packed columns that a call
// reads.
#pragma once

#include "elementwise/chain.h"
#include "graph/call.h"
#include "movement/copy.h"
#include "reductions/window.h"

namespace neuronsim {

using Kept = std::vector<std::shared_ptr<const void>>;

// Without outputs it only observes a chain that a product runs on an operand while it is packed,
// however often.
std::shared_ptr<Call> placed(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                             std::vector<View> inputs, const std::vector<char*>& outputs);
// Of a ReduceCall, WindowsCall or CopyCall.
template <class Kernel>
std::shared_ptr<Call> placed(const Kernel& kernel, Kept kept = {});

}  // namespace neuronsim
