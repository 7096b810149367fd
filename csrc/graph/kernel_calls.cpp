#include "graph/kernel_calls.h"

#include <utility>

namespace neuronsim {
namespace {

class PlacedChain : public Call {
public:
    PlacedChain(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                std::vector<View> inputs, const std::vector<char*>& outputs)
        : chain_(std::move(chain)),
          shape_(std::move(shape)),
          count_(element_count(shape_)),
          views_(std::move(inputs)) {
        for (const View& v : views_) inputs_.emplace_back(v.data);
        for (const char* data : outputs) outputs_.emplace_back(data);
        collapse(shape_, views_);
    }
    void place(const std::vector<Standin>& standins) override {
        for (Address& a : inputs_) a.place(standins);
        for (Address& a : outputs_) a.place(standins);
    }
    void run(const Run& run) const override {
        std::vector<View> views = views_;
        for (size_t i = 0; i < views.size(); ++i) views[i].data = inputs_[i].in(run.memories);
        std::vector<char*> outputs;
        for (const Address& a : outputs_) outputs.push_back(a.in(run.memories));
        run_chain(run, views, outputs);
    }
    size_t record_count() const override { return chain_->link_count(); }

protected:
    virtual void run_chain(const Run& run, const std::vector<View>& views,
                           const std::vector<char*>& outputs) const {
        chain_->run_collapsed(count_, shape_, views, outputs, 0, {}, records(run));
    }
    const std::shared_ptr<const Chain> chain_;
    std::vector<int64_t> shape_;
    const int64_t count_;

private:
    std::vector<View> views_;
    std::vector<Address> inputs_, outputs_;
};

class PlacedPrologue : public PlacedChain {
public:
    using PlacedChain::PlacedChain;

protected:
    void run_chain(const Run& run, const std::vector<View>& views,
                   const std::vector<char*>&) const override {
        if (run.observed != nullptr) chain_->observe_collapsed(count_, shape_, views[0], records(run));
    }
};

struct ProductAddresses {
    Address a, b, result;
    std::vector<Address> terms;

    explicit ProductAddresses(const ProductCall& call)
        : a(call.a.data), b(call.b.data), result(call.result.data) {
        for (const ProductTerm& t : call.result.terms) terms.emplace_back(t.data);
    }
    void place(const std::vector<Standin>& standins) {
        a.place(standins);
        b.place(standins);
        result.place(standins);
        for (Address& t : terms) t.place(standins);
    }
    void set(ProductCall& call, char* const* memories) const {
        call.a.data = a.in(memories);
        call.b.data = b.in(memories);
        call.result.data = result.in(memories);
        for (size_t i = 0; i < terms.size(); ++i) call.result.terms[i].data = terms[i].in(memories);
    }
};

ProductCall& product_of(ProductCall& call) { return call; }
ProductCall& product_of(ConvolutionCall& call) { return call.operands; }
const ProductCall& product_of(const ProductCall& call) { return call; }
const ProductCall& product_of(const ConvolutionCall& call) { return call.operands; }

// A product or a convolution.
template <class Contraction>
class PlacedProduct : public Call {
public:
    PlacedProduct(const Contraction& call, Kept kept)
        : call_(call), at_(product_of(call)), kept_(std::move(kept)) {}
    void place(const std::vector<Standin>& standins) override { at_.place(standins); }
    void run(const Run& run) const override {
        Contraction call = call_;
        at_.set(product_of(call), run.memories);
        product_of(call).result.observed = records(run);
        call.run({});
    }
    size_t record_count() const override {
        const ProductResult& result = product_of(call_).result;
        return result.epilogue == nullptr ? 0 : 1 + result.epilogue->link_count();
    }

private:
    const Contraction call_;
    ProductAddresses at_;
    const Kept kept_;
};

// A reduction, of the whole axes or of windows.
template <class Reducing>
class PlacedReduction : public Call {
public:
    explicit PlacedReduction(const Reducing& call)
        : call_(call), input_(call.input.data), initial_(call.initial), output_(call.output) {}
    void place(const std::vector<Standin>& standins) override {
        input_.place(standins);
        initial_.place(standins);
        output_.place(standins);
    }
    void run(const Run& run) const override {
        Reducing call = call_;
        call.input.data = input_.in(run.memories);
        call.initial = initial_.in(run.memories);
        call.output = output_.in(run.memories);
        call.run();
    }

private:
    const Reducing call_;
    Address input_, initial_, output_;
};

class PlacedCopy : public Call {
public:
    PlacedCopy(const Copy& copy, const char* source, char* target)
        : copy_(simplified(copy)), source_(source), target_(target) {}
    void place(const std::vector<Standin>& standins) override {
        source_.place(standins);
        target_.place(standins);
    }
    void run(const Run& run) const override {
        run_copy(copy_, source_.in(run.memories), target_.in(run.memories));
    }

private:
    const Copy copy_;
    Address source_, target_;
};

}  // namespace

std::shared_ptr<Call> placed(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                             std::vector<View> inputs, const std::vector<char*>& outputs) {
    return std::make_shared<PlacedChain>(std::move(chain), std::move(shape), std::move(inputs),
                                         outputs);
}
std::shared_ptr<Call> placed_prologue(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                                      const View& input) {
    return std::make_shared<PlacedPrologue>(std::move(chain), std::move(shape),
                                            std::vector<View>{input}, std::vector<char*>{});
}
std::shared_ptr<Call> placed(const ProductCall& call, Kept kept) {
    return std::make_shared<PlacedProduct<ProductCall>>(call, std::move(kept));
}
std::shared_ptr<Call> placed(const ConvolutionCall& call, Kept kept) {
    return std::make_shared<PlacedProduct<ConvolutionCall>>(call, std::move(kept));
}
std::shared_ptr<Call> placed(const ReduceCall& call) {
    return std::make_shared<PlacedReduction<ReduceCall>>(call);
}
std::shared_ptr<Call> placed(const WindowsCall& call) {
    return std::make_shared<PlacedReduction<WindowsCall>>(call);
}
std::shared_ptr<Call> placed(const Copy& copy, const char* source, char* target) {
    return std::make_shared<PlacedCopy>(copy, source, target);
}

}  // namespace neuronsim
