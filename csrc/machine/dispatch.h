// The instruction set in use: chosen once at import, NEURONSIM_ISA forces one.
#pragma once

#include <string>
#include <vector>

#include "machine/kernels.h"

namespace neuronsim {

const Kernels& kernels();
const Kernels& widest_kernels();            // that this processor has
std::vector<std::string> available_isas();  // narrowest first
// Throws std::invalid_argument if the name is unknown or this processor lacks it.
void select_isa(const std::string& name);

}  // namespace neuronsim
