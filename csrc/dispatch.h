// The instruction set in use: chosen once at import, NEURONSIM_ISA forces one.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace neuronsim {

const Kernels& kernels();
std::vector<std::string> available_isas();  // narrowest first
// Throws std::invalid_argument if the name is unknown or this processor lacks it.
void select_isa(const std::string& name);

// Whether VDPBF16PS was seen, when the module was loaded, to do on this processor what M2 asks of it.
bool pairs_are_proved();

}  // namespace neuronsim
