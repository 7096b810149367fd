#include "graph/kernel_calls.h"

#include <atomic>
#include <utility>

namespace neuronsim {
namespace {

class PlacedChain : public Call {
public:
    PlacedChain(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                std::vector<View> inputs, const std::vector<char*>& outputs)
        : chain_(std::move(chain)), layout_(std::move(shape), std::move(inputs)) {
        for (const View& v : layout_.views) at_.emplace_back(v.data);
        for (const char* data : outputs) at_.emplace_back(data);
    }
    void run(const Run& run) const override {
        const size_t inputs = layout_.views.size();
        const Places places(at_, run);
        if (at_.size() > inputs) {
            chain_->run_laid_out(layout_, places.data(), places.data() + inputs, 0, nullptr,
                                 records(run));
        } else if (run.observed != nullptr) {
            View view = layout_.views[0];
            view.data = places.data()[0];
            chain_->observe_collapsed(layout_.count, layout_.shape, view, records(run));
        }
    }
    size_t record_count() const override { return chain_->link_count(); }

private:
    const std::shared_ptr<const Chain> chain_;
    const Layout layout_;
};

// Calls f for each pointer to what a kernel reads and writes.
template <class F>
void for_data(CopyCall& c, const F& f) {
    f(c.source);
    f(c.target);
}
template <class Reducing, class F>
    requires requires(Reducing c) { c.initial; }
void for_data(Reducing& c, const F& f) {
    f(c.input.data);
    f(c.initial);
    f(c.output);
}

template <class Kernel>
class PlacedKernel : public Call {
public:
    PlacedKernel(const Kernel& kernel, Kept kept) : kernel_(kernel), kept_(std::move(kept)) {
        for_data(kernel_, [&](const char* data) { at_.emplace_back(data); });
    }
    void run(const Run& run) const override {
        // A copy takes longer than many a kernel: it is made where another thread has the original.
        if (!taken_.test_and_set(std::memory_order_acquire)) {
            struct Release {
                std::atomic_flag& taken;
                ~Release() { taken.clear(std::memory_order_release); }
            } const release{taken_};
            return run_on(kernel_, run);
        }
        Kernel kernel = kernel_;
        run_on(kernel, run);
    }

private:
    void run_on(Kernel& kernel, const Run& run) const {
        size_t i = 0;
        for_data(kernel, [&](auto& data) { data = at(run, i++); });
        kernel.run();
    }

    mutable Kernel kernel_;
    mutable std::atomic_flag taken_;
    const Kept kept_;
};

}  // namespace

std::shared_ptr<Call> placed(std::shared_ptr<const Chain> chain, std::vector<int64_t> shape,
                             std::vector<View> inputs, const std::vector<char*>& outputs) {
    return std::make_shared<PlacedChain>(std::move(chain), std::move(shape), std::move(inputs),
                                         outputs);
}

template <class Kernel>
std::shared_ptr<Call> placed(const Kernel& kernel, Kept kept) {
    return std::make_shared<PlacedKernel<Kernel>>(kernel, std::move(kept));
}
template std::shared_ptr<Call> placed(const ReduceCall&, Kept);
template std::shared_ptr<Call> placed(const WindowsCall&, Kept);
template std::shared_ptr<Call> placed(const CopyCall&, Kept);

}  // namespace neuronsim
