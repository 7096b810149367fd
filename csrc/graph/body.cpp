#include "graph/body.h"

#include <algorithm>
#include <cstring>

#include "machine/dispatch.h"
#include "machine/interrupt.h"

namespace neuronsim {

void Body::place(const std::vector<Standin>& standins) {
    place_all(calls_, standins);
    // A step takes some nanoseconds, however few the elements, a call up to a microsecond.
    constexpr int64_t of_step = 64, of_call = 1024;
    steps_.clear();
    operations_ = of_call;
    for (size_t i = 0; i < calls_.size(); ++i) {
        if (calls_[i]->append_to(*this)) continue;
        steps_.push_back({Kind::call, 0, static_cast<int>(i)});
        operations_ += of_call;
    }
    operations_ += of_step * static_cast<int64_t>(steps_.size());
}

bool Body::append(const ChainCall& call, const std::vector<Address>& at) {
    const Chain& chain = *call.chain;
    const auto n = static_cast<int>(std::min<int64_t>(call.layout.count, few_elements + 1));
    if (n < 1 || n > few_elements || chain.draws()) return false;
    const Chain::Few few = chain.few();
    const size_t inputs = chain.inputs().size();
    if (few.steps.empty() || few.register_count > few_registers) return false;
    for (size_t i = 0; i < inputs; ++i)
        if (n > 1 && !call.layout.is_dense[i] && !call.layout.views[i].strides.empty() &&
            (call.layout.views[i].strides.size() > 1 || call.layout.views[i].strides[0] != 0))
            return false;
    // Values lie in registers, or where they are stored if they lie there as they are computed with.
    const int64_t pitch = (n * int64_t{sizeof(uint64_t)} + 63) / 64 * 64;
    std::vector<Place> places;
    for (size_t v = 0; v < few.values.size(); ++v) {
        const auto& [number, constant, type] = few.values[v];
        places.push_back({Address::scratch, number * pitch});
        if (constant != nullptr) places[v] = {0, reinterpret_cast<intptr_t>(constant)};
    }
    const auto lies_at = [&](size_t a, DType type) {
        return Place{at[a].memory(), at[a].offset() % computed_bytes(type) == 0 ? at[a].offset() : -1};
    };
    for (size_t i = 0; i < inputs; ++i) {
        const DType type = few.values[i].type;
        const Place place = lies_at(i, type);
        const bool dense = n == 1 || call.layout.is_dense[i];
        if (dense && is_stored_as_computed(type) && place.offset >= 0) {
            places[i] = place;
            continue;
        }
        steps_.push_back({Kind::load, n, static_cast<int>(type), dense ? storage_bytes(type) : 0,
                          places[i], {{at[i].memory(), at[i].offset()}}});
    }
    std::vector<char> stored;
    for (size_t o = 0; o < chain.output_count(); ++o) {
        const auto v = static_cast<size_t>(few.outputs[o].value);
        const Place place = lies_at(inputs + o, few.values[v].type);
        stored.push_back(few.outputs[o].writes_itself && place.offset >= 0);
        if (stored[o]) places[v] = place;
    }
    for (const Chain::Few::Step& s : few.steps) {
        const auto kind = s.kernel >= Chain::Few::rotation ? Kind::rotate
                          : s.kernel >= 0                   ? Kind::operate
                                                            : Kind::link;
        const int what = kind == Kind::rotate    ? s.kernel - Chain::Few::rotation
                         : kind == Kind::operate ? s.kernel
                                                 : s.link;
        Step step{kind, n, what, s.bits, {}, {}, &chain};
        const auto out = static_cast<size_t>(s.out);
        if (s.same_as >= 0) {
            places[out] = places[static_cast<size_t>(s.same_as)];
            continue;
        }
        step.out = places[out];
        for (size_t i = 0; i < max_arity; ++i) step.in[i] = places[static_cast<size_t>(s.operands[i])];
        steps_.push_back(step);
        if (s.round >= 0) steps_.push_back({Kind::round, n, s.round, 0, places[out]});
    }
    for (size_t o = 0; o < chain.output_count(); ++o) {
        const auto v = static_cast<size_t>(few.outputs[o].value);
        const Address& target = at[inputs + o];
        const Place place{target.memory(), target.offset()};
        if (stored[o] && places[v].memory == place.memory && places[v].offset == place.offset) continue;
        const DType type = few.values[v].type;
        if (is_stored_as_computed(type) && !is_device_float(type))
            steps_.push_back({Kind::copy, 1, n * storage_bytes(type), 0, place, {places[v]}});
        else
            steps_.push_back(
                {Kind::store, n, static_cast<int>(type), few.outputs[o].moves, place, {places[v]}});
    }
    return true;
}

bool Body::append(const CopyCall& call, const std::vector<Address>& at) {
    const int64_t bytes = row_bytes(call.copy);
    if (bytes < 0 || bytes > few_bytes) return false;
    steps_.push_back({Kind::copy, 1, static_cast<int>(bytes), 0, {at[1].memory(), at[1].offset()},
                      {{at[0].memory(), at[0].offset()}}});
    return true;
}

bool append(Body& body, const ChainCall& call, const std::vector<Address>& at) {
    return body.append(call, at);
}
bool append(Body& body, const CopyCall& call, const std::vector<Address>& at) {
    return body.append(call, at);
}

void Body::run(const Run& run) const {
    if (!run.by_steps) return run_all(calls_, run);
    note_work(operations_);
    const Kernels& k = kernels();
    char* const* const memories = run.memories;
    for (const Step& s : steps_) {
        if (s.kind == Kind::call) {
            calls_[static_cast<size_t>(s.what)]->run(run);
            continue;
        }
        char *const out = s.out.in(memories), *const in = s.in[0].in(memories);
        const void* operands[max_arity] = {in, s.in[1].in(memories), s.in[2].in(memories)};
        switch (s.kind) {
            case Kind::operate:
                (&k.op[0][0])[s.what](out, operands, s.n, s.bits);
                break;
            case Kind::copy:
                if (s.what == 4) std::memcpy(out, in, 4);
                else std::memcpy(out, in, static_cast<size_t>(s.what));
                break;
            case Kind::load:
                k.load[s.what](in, s.bits, s.n, out);
                break;
            case Kind::rotate:
                k.rotate[s.what](out, operands, s.n, s.bits);
                break;
            case Kind::round:
                k.round[s.what](out, s.n);
                break;
            case Kind::store:
                (s.bits != 0 ? k.store : k.store_quiet)[s.what](in, s.n, out);
                break;
            default:
                s.chain->run_link(k, static_cast<size_t>(s.what), out, operands, s.n, {}, 0);
        }
    }
}

}  // namespace neuronsim
