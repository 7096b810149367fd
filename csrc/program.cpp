#include "program.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "dispatch.h"
#include "pool.h"

namespace neuronsim {
namespace {

constexpr int64_t tiles_per_grain = 16;

bool has_domain(int op, Domain d) { return kernels().op[op][static_cast<int>(d)] != nullptr; }

bool is_kind(int op, const char* kind) { return op_rows[op].kind == std::string(kind); }

void check_step(const Step& step, const std::vector<DType>& dtypes) {
    const auto fail = [&](const std::string& why) {
        throw std::invalid_argument((step.op == convert_op ? "convert" : op_rows[step.op].name) +
                                    std::string(": ") + why);
    };
    for (const int v : step.operands)
        if (v < 0 || v >= static_cast<int>(dtypes.size())) fail("an operand is not computed yet");
    const auto dtype = [&](size_t i) { return dtypes[static_cast<size_t>(step.operands[i])]; };
    if (step.op == convert_op) {
        if (step.operands.size() != 1) fail("takes one operand");
        return;
    }
    if (static_cast<int>(step.operands.size()) != op_rows[step.op].arity)
        fail("takes " + std::to_string(op_rows[step.op].arity) + " operands");
    const size_t first = is_kind(step.op, "selection") ? 1 : 0;
    if (first == 1 && dtype(0) != DType::boolean) fail("the first operand must be bool");
    const Domain domain = domain_of(dtype(first));
    for (size_t i = first; i < step.operands.size(); ++i)
        if (domain_of(dtype(i)) != domain) fail("the operands' types do not go together");
    if (!has_domain(step.op, domain))
        fail("not defined for " + std::string(dtype_names[static_cast<int>(dtype(first))]));
    const bool fits = is_kind(step.op, "comparison") ? step.result == DType::boolean
                                                     : domain_of(step.result) == domain;
    if (!fits) fail("the result cannot be " + std::string(dtype_names[static_cast<int>(step.result)]));
}

}  // namespace

TileProgram::TileProgram(std::vector<DType> inputs, std::vector<Step> steps, std::vector<int> outputs,
                         bool integers_via_float32)
    : inputs_(std::move(inputs)),
      steps_(std::move(steps)),
      outputs_(std::move(outputs)),
      dtypes_(inputs_),
      integers_via_float32_(integers_via_float32) {
    for (const Step& step : steps_) {
        if (step.op < 0 || step.op > op_count) throw std::invalid_argument("unknown operation");
        check_step(step, dtypes_);
        dtypes_.push_back(step.result);
    }
    const int values = static_cast<int>(dtypes_.size());
    const int input_count = static_cast<int>(inputs_.size());
    std::vector<int> last_use(static_cast<size_t>(values), -1);
    for (int s = 0; s < static_cast<int>(steps_.size()); ++s)
        for (const int v : steps_[static_cast<size_t>(s)].operands)
            last_use[static_cast<size_t>(v)] = s;
    // A value that is only stored need not be rounded before: storing a narrow float rounds it.
    for (int v = input_count; v < values; ++v) {
        const DType t = dtypes_[static_cast<size_t>(v)];
        const bool is_read = last_use[static_cast<size_t>(v)] >= 0;
        rounds_.push_back(is_read || !is_device_float(t) || storage_bytes(t) == 4);
    }
    for (const int v : outputs_) {
        if (v < 0 || v >= values) throw std::invalid_argument("an output is not computed");
        last_use[static_cast<size_t>(v)] = values;
    }
    // A step's result never shares a tile with its operands: their elements may differ in size.
    std::vector<int> free_registers;
    for (int v = 0; v < values; ++v) {
        if (v < input_count || free_registers.empty()) {
            registers_.push_back(register_count_++);
        } else {
            registers_.push_back(free_registers.back());
            free_registers.pop_back();
        }
        if (v < input_count) continue;
        const int s = v - input_count;
        const std::vector<int>& operands = steps_[static_cast<size_t>(s)].operands;
        for (size_t i = 0; i < operands.size(); ++i) {
            bool repeated = false;
            for (size_t j = 0; j < i; ++j) repeated = repeated || operands[j] == operands[i];
            if (!repeated && last_use[static_cast<size_t>(operands[i])] == s)
                free_registers.push_back(registers_[static_cast<size_t>(operands[i])]);
        }
    }
}

void TileProgram::run_step(const Kernels& k, size_t index, Tile& out, const Tile* const* operands,
                           int n) const {
    const Step& step = steps_[index];
    const DType source = dtypes_[static_cast<size_t>(step.operands.back())];
    const int from = static_cast<int>(domain_of(source));
    const int target = static_cast<int>(step.result);
    if (step.op != convert_op) {
        k.op[step.op][from](out, operands, n);
        if (rounds_[index]) k.round[target](out, n);
        return;
    }
    if (step.result == source) {
        __builtin_memcpy(&out, operands[0], sizeof(Tile));  // C5: moves bits
    } else if (is_device_float(step.result)) {
        if (is_device_float(source)) {
            __builtin_memcpy(&out, operands[0], sizeof(Tile));
            k.canonicalize(out, n);
        } else {
            // C1: an integer of 32 bits or fewer goes through float32 unless the profile says exact.
            const bool through_float32 =
                step.result == DType::float32 ||
                (integers_via_float32_ && source != DType::float64 && storage_bytes(source) <= 4);
            k.to_float32[from](out, *operands[0], n,
                               through_float32 ? Narrowing::nearest : Narrowing::odd);
        }
        if (rounds_[index]) k.round[target](out, n);
    } else if (step.result == DType::float64) {
        k.to_float64[from](out, *operands[0], n);
    } else if (step.result == DType::boolean) {
        k.to_bool[from](out, *operands[0], n);
    } else {
        k.to_integer[from][target](out, *operands[0], n);
    }
}

void TileProgram::run(const std::vector<int64_t>& full_shape, const std::vector<View>& views,
                      const std::vector<char*>& outputs) const {
    const Kernels& k = kernels();
    std::vector<int64_t> shape = full_shape;
    std::vector<View> inputs = views;
    collapse(shape, inputs);
    const int64_t n = element_count(full_shape);
    const auto body = [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[static_cast<size_t>(register_count_)]);
        const auto tile = [&](int value) -> Tile& {
            return tiles[static_cast<size_t>(registers_[static_cast<size_t>(value)])];
        };
        for (int64_t at = begin; at < end; at += tile_elements) {
            const int count = static_cast<int>(end - at < tile_elements ? end - at : tile_elements);
            for (size_t i = 0; i < inputs.size(); ++i)
                load_run(k, shape, inputs[i], at, count, tile(static_cast<int>(i)));
            for (size_t s = 0; s < steps_.size(); ++s) {
                const Tile* operands[max_arity] = {};
                for (size_t i = 0; i < steps_[s].operands.size(); ++i)
                    operands[i] = &tile(steps_[s].operands[i]);
                run_step(k, s, tile(static_cast<int>(inputs_.size() + s)), operands, count);
            }
            for (size_t o = 0; o < outputs.size(); ++o) {
                const DType t = output_dtype(o);
                k.store[static_cast<int>(t)](tile(outputs_[o]), outputs[o] + at * storage_bytes(t),
                                             count);
            }
        }
    };
    parallel_for(n, tiles_per_grain * tile_elements, body);
}

}  // namespace neuronsim
