#include "graph/body.h"

#include <cstring>
#include <optional>

#include "machine/dispatch.h"
#include "machine/interrupt.h"

namespace neuronsim {

void Body::place(const std::vector<Standin>& standins) {
    place_all(calls_, standins);
    // A step takes some nanoseconds, however few the elements, a call up to a microsecond.
    constexpr int64_t of_step = 64, of_call = 1024;
    steps_.clear();
    products_.clear();
    operations_ = of_call;
    for (size_t i = 0; i < calls_.size(); ++i) {
        if (calls_[i]->append_to(*this)) continue;
        steps_.push_back({Kind::call, 0, static_cast<int>(i)});
        operations_ += of_call;
    }
    operations_ += of_step * static_cast<int64_t>(steps_.size());
}

namespace {

// Whether the n elements of each input lie side by side or are one.
bool lie_plainly(const Layout& layout, int64_t n) {
    for (size_t i = 0; i < layout.views.size() && n > 1; ++i) {
        const Axes& axes = layout.views[i].axes;
        const bool is_one = axes.size() == 1 && axes[0].stride == 0;
        if (!layout.is_dense[i] && !is_one) return false;
    }
    return true;
}

// Where in the scratch memory a register of n elements lies.
int64_t register_offset(int64_t number, int64_t n) {
    constexpr int64_t line = 64;
    return number * ceil_divide(n * int64_t{sizeof(uint64_t)}, line) * line;
}

// Whether a product's term has its elements side by side, row by row of the result, or one for all;
// nothing where it lies otherwise.
std::optional<bool> lies_in_order(const ProductTerm& term, const FewProduct& p) {
    const int64_t size = storage_bytes(term.dtype);
    const Axes rows = collapsed(term.rows, size), columns = collapsed(term.columns, size);
    if (rows.size() != 1 || columns.size() != 1) return std::nullopt;
    const auto steps = [&](int64_t row, int64_t column) {
        return (p.rows == 1 || rows[0].stride == row) &&
               (p.columns == 1 || columns[0].stride == column);
    };
    if (steps(size * p.columns, size)) return true;
    if (steps(0, 0)) return false;
    return std::nullopt;
}

}  // namespace

bool Body::append(const ChainCall& call, const std::vector<Address>& at) {
    const int64_t n = call.layout.count;
    if (!lie_plainly(call.layout, n)) return false;
    const size_t inputs = call.chain->inputs().size();
    std::vector<Source> sources;
    for (size_t i = 0; i < inputs; ++i) sources.push_back({at[i], n == 1 || call.layout.is_dense[i]});
    std::vector<Address> targets;
    for (size_t o = inputs; o < at.size(); ++o) targets.emplace_back(at[o]);
    return append_chain(*call.chain, n, sources, targets);
}

bool Body::append_chain(const Chain& chain, int64_t count, const std::vector<Source>& sources,
                        const std::vector<Address>& targets) {
    if (count < 1 || count > few_elements || chain.draws()) return false;
    const auto n = static_cast<int>(count);
    const ChainPlan& plan = chain.plan();
    if (plan.steps.empty() || plan.has_passes() || plan.register_count > few_registers) return false;
    const auto is_aligned = [](const Address& p, DType type) {
        return p.offset % computed_bytes(type) == 0;
    };
    // Values lie in registers, or where they are stored if they are computed with there.
    std::vector<Address> places;
    for (const int number : plan.registers)
        places.emplace_back(Address::scratch, register_offset(number, n));
    for (const auto& [v, tile] : plan.fixed) places[v] = Address(tile);
    for (size_t i = 0; i < sources.size(); ++i) {
        const DType type = plan.dtypes[i];
        const auto& [from, is_dense] = sources[i];
        const int stride = is_dense ? storage_bytes(type) : 0;
        if (is_dense && is_read_in_place(type) && is_aligned(from, type)) places[i] = from;
        else steps_.push_back({Kind::load, n, static_cast<int>(type), stride, places[i], {from}});
    }
    for (size_t o = 0; o < targets.size(); ++o) {
        const int v = plan.outputs[o];
        if (plan.may_write_itself(o) && is_aligned(targets[o], plan.dtypes[v])) places[v] = targets[o];
    }
    append_links(plan, sources.size(), n, places);
    for (size_t o = 0; o < targets.size(); ++o) {
        const int v = plan.outputs[o];
        const DType type = plan.dtypes[v];
        const Address& to = targets[o];
        if (places[v] == to) continue;
        if (is_stored_as_computed(type) && !is_device_float(type))
            steps_.push_back({Kind::copy, 1, n * storage_bytes(type), 0, to, {places[v]}});
        else steps_.push_back({Kind::store, n, static_cast<int>(type), plan.moves(v), to, {places[v]}});
    }
    return true;
}

bool Body::append(const ProductCall& call, const std::vector<Address>& at) {
    const std::optional<FewProduct> product = product_of_few(call);
    if (!product) return false;
    const Address to = at[2];
    Step multiply{Kind::multiply, 0, static_cast<int>(products_.size()), 0, to, {at[0], at[1]}};
    if (const Chain* const epilogue = call.result.epilogue) {
        const int64_t n = int64_t{product->rows} * product->columns;
        // The sums come to lie in the register that the chain has for them.
        multiply.out = {Address::scratch, register_offset(epilogue->plan().registers[0], n)};
        std::vector<Source> sources{{multiply.out, true}};
        for (size_t i = 0; i < call.result.terms.size(); ++i) {
            const std::optional<bool> is_dense = lies_in_order(call.result.terms[i], *product);
            if (!is_dense) return false;
            sources.push_back({at[3 + i], *is_dense});
        }
        steps_.push_back(multiply);
        if (!append_chain(*epilogue, n, sources, {to})) {
            steps_.pop_back();
            return false;
        }
    } else {
        steps_.push_back(multiply);
    }
    products_.push_back(*product);
    operations_ += int64_t{product->rows} * product->columns * product->depth;
    return true;
}

void Body::append_links(const ChainPlan& plan, size_t inputs, int n, std::vector<Address>& places) {
    for (const int link : plan.steps) {
        Address& out = places[inputs + static_cast<size_t>(link)];
        const PlannedLink& planned = plan.links[link];
        if (planned.way == Way::repeats || planned.way == Way::aliases) {
            out = places[planned.reads[0]];
            continue;
        }
        Step step{Kind::link, n, link, planned.bits, out, {}, &plan};
        if (planned.way == Way::rotates) {
            step.kind = Kind::rotate;
            step.what = planned.kernel;
        } else if (planned.way == Way::operates || planned.way == Way::selects_by) {
            step.kind = planned.way == Way::operates ? Kind::operate : Kind::select_by;
            step.what = planned.kernel * domain_count + static_cast<int>(planned.domain);
        }
        for (size_t i = 0; i < max_reads; ++i) step.in[i] = places[planned.reads[i]];
        steps_.push_back(step);
        if (planned.round >= 0) steps_.push_back({Kind::round, n, planned.round, 0, out});
    }
}

bool Body::append(const CopyCall& call, const std::vector<Address>& at) {
    const int64_t bytes = row_bytes(call.simplified_copy);
    if (bytes < 0 || bytes > few_bytes) return false;
    steps_.push_back({Kind::copy, 1, static_cast<int>(bytes), 0, at[1], {at[0]}});
    return true;
}

void Body::run(const Run& run) const {
    if (!run.by_steps) return run_all(calls_, run);
    note_work(operations_);
    const Kernels& k = kernels();
    char* const* const memories = run.memories;
    for (const Step& s : steps_) {
        if (s.kind == Kind::call) {
            calls_[s.what]->run(run);
            continue;
        }
        char *const out = s.out.in(memories), *const in = s.in[0].in(memories);
        const void* operands[max_reads] = {in, s.in[1].in(memories), s.in[2].in(memories),
                                           s.in[3].in(memories)};
        switch (s.kind) {
            case Kind::operate:
                (&k.op[0][0])[s.what](out, operands, s.n, s.bits);
                break;
            case Kind::select_by:
                (&k.select_by[0][0])[s.what](out, operands, s.n, s.bits);
                break;
            case Kind::copy:
                if (s.what == 4) std::memcpy(out, in, 4);
                else std::memcpy(out, in, s.what);
                break;
            case Kind::multiply:
                k.product_few(products_[s.what], in, s.in[1].in(memories),
                              reinterpret_cast<float*>(out));
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
                run_link(k, *s.chain, s.chain->links[s.what], out, operands, s.n, {}, 0);
        }
    }
}

}  // namespace neuronsim
