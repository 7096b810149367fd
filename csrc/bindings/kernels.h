// Kernels as Python has them: bound to arrays they are calls.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bindings/views.h"
#include "graph/body.h"

namespace neuronsim {

// A bound call in Python keeps the arguments of these numbers, its arrays: an executable that takes it
// over only keeps the call.
template <size_t... Arguments>
struct Keeps {};

// A kernel whose `run` takes the places of what it reads and writes and, of one that may draw or be
// looked at, what it draws from and its records.
template <class Kernel>
class BoundCall : public Call {
public:
    BoundCall(Kernel kernel, const std::vector<const void*>& data, std::shared_ptr<const void> kept)
        : kernel_(std::move(kernel)), kept_(std::move(kept)) {
        for (const void* p : data) at_.emplace_back(p);
    }
    void run(const Run& run) const override {
        const Places places(at_, run);
        if constexpr (requires { kernel_.record_count(); })
            kernel_.run(places.data(), run.draws, records(run));
        else if constexpr (requires { kernel_.draw_count(); }) kernel_.run(places.data(), run.draws);
        else kernel_.run(places.data());
    }
    bool append_to(Body& body) const override {
        if constexpr (requires { body.append(kernel_, at_); })
            return !is_recorded() && body.append(kernel_, at_);
        return false;
    }
    bool is_few() const override {
        if constexpr (requires { product_of_few(kernel_); }) return product_of_few(kernel_).has_value();
        return false;
    }
    size_t record_count() const override {
        if constexpr (requires { kernel_.record_count(); }) return kernel_.record_count();
        return 0;
    }
    size_t draw_count() const override {
        if constexpr (requires { kernel_.draw_count(); }) return kernel_.draw_count();
        return 0;
    }

private:
    const Kernel kernel_;
    const std::shared_ptr<const void> kept_;
};

// The kernel on its places. `kept` is what it refers to.
template <class Kernel>
std::shared_ptr<Call> bound(Kernel kernel, const std::vector<const void*>& data,
                            std::shared_ptr<const void> kept = nullptr) {
    return std::make_shared<BoundCall<Kernel>>(std::move(kernel), data, std::move(kept));
}

}  // namespace neuronsim

template <size_t... Arguments>
struct pybind11::detail::process_attribute<neuronsim::Keeps<Arguments...>>
    : pybind11::detail::process_attribute_default<neuronsim::Keeps<Arguments...>> {
    static void precall(function_call&) {}
    static void postcall(function_call& call, handle made) {
        // pybind11 3.1 comes here too where the arguments did not fit.
        if (made.ptr() != PYBIND11_TRY_NEXT_OVERLOAD) (keep_alive_impl(0, Arguments, call, made), ...);
    }
};
