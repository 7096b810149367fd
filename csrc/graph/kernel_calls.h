// The kernels as calls with placed memory. `kept` are the programs and packed columns that a call
// reads.
#pragma once

#include "elementwise/chain.h"
#include "graph/call.h"
#include "movement/copy.h"
#include "products/convolution/convolution.h"
#include "products/product.h"
#include "reductions/reduce.h"
#include "reductions/window.h"

namespace neuronsim {

using Kept = std::vector<std::shared_ptr<const void>>;

std::shared_ptr<Call> placed(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                             std::vector<View> inputs, const std::vector<char*>& outputs);
// Only observes a chain that a product runs on an operand while it is packed, however often.
std::shared_ptr<Call> placed_prologue(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                                      const View& input);
std::shared_ptr<Call> placed(const ProductCall& call, Kept kept);
std::shared_ptr<Call> placed(const ConvolutionCall& call, Kept kept);
std::shared_ptr<Call> placed(const ReduceCall& call);
std::shared_ptr<Call> placed(const WindowsCall& call);
std::shared_ptr<Call> placed(const Copy& copy, const char* source, char* target);

}  // namespace neuronsim
