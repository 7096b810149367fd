#include <pybind11/stl.h>

#include <string>

#include "bindings/bindings.h"
#include "bindings/views.h"
#include "machine/dispatch.h"
#include "machine/pool.h"
#include "products/form.h"
#include "products/instructions.h"

namespace py = pybind11;

namespace neuronsim {

// As Bfloat16Products and ByteProducts have them.
static constexpr const char* bfloat16_products_names[] = {"auto", "pairs", "fma"};
static constexpr const char* byte_products_names[] = {"auto", "tiles", "quads", "widened"};

void add_machine(py::module_& m) {
    m.def(
        "run_fma_chains",
        [](int64_t n) {
            [[maybe_unused]] const volatile float used = kernels().fma_chains(n);
            return 2 * n * kernels().chain_count;
        },
        py::arg("n"));
    m.def(
        "run_pair_chains",
        [](int64_t n) {
            const auto chains = kernels().pair_chains;
            if (chains == nullptr) return int64_t{0};
            [[maybe_unused]] const volatile float used = chains(n);
            return 4 * n * kernels().chain_count;
        },
        py::arg("n"));
    m.def("pairs_are_proved", &pairs_are_proved);
    m.def(
        "multiplies_pairs",
        [](int64_t rows) {
            const Accumulation how{Accumulate::fma, DType::float32, 2};
            return product_form(kernels(), DType::bfloat16, DType::bfloat16, how, {}, rows) ==
                   ProductForm::pairs;
        },
        py::arg("rows"));
    m.def(
        "select_bfloat16_products",
        [](const std::string& name) {
            select_bfloat16_products(
                named<Bfloat16Products>(bfloat16_products_names, name, "form of products"));
        },
        py::arg("name"));
    m.def("byte_products", [] { return byte_products_names[static_cast<int>(byte_products())]; });
    m.def(
        "select_byte_products",
        [](const std::string& name) {
            select_byte_products(named<ByteProducts>(byte_products_names, name, "form of products"));
        },
        py::arg("name"));
    m.def("isa", [] { return std::string(kernels().isa); });
    m.def("available_isas", &available_isas);
    m.def("select_isa", &select_isa, py::arg("name"));
    m.def("thread_count", &thread_count);
    m.def("set_thread_count", [](int n) {
        require(n >= 1, "at least one thread");
        set_thread_count(n);
    });
}

}  // namespace neuronsim
