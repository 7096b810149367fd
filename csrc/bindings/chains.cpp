#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/kernels.h"
#include "machine/interrupt.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

using Row = std::tuple<int, int, std::vector<int64_t>>;  // operation, result, operands or constant
Chain make_chain(const std::vector<int>& inputs, const std::vector<Row>& rows, std::vector<int> outputs,
                 const Numerics& numerics) {
    std::vector<DType> types;
    for (const int code : inputs) types.push_back(dtype_code(code));
    std::vector<Link> links;
    for (const auto& [op, result, operands] : rows) {
        const bool is_constant = op == constant_op && operands.size() == 1;
        Link link{op, dtype_code(result), {}};
        if (is_constant) link.constant = static_cast<uint64_t>(operands[0]);
        else link.operands.assign(operands.begin(), operands.end());
        links.push_back(std::move(link));
    }
    return Chain(std::move(types), std::move(links), std::move(outputs), numerics);
}

std::shared_ptr<Call> chain_on(const std::shared_ptr<Chain>& chain,
                               const std::vector<py::array>& inputs,
                               const std::vector<py::array>& outputs) {
    require(inputs.size() == chain->inputs().size() && outputs.size() == chain->output_count() &&
                !outputs.empty(),
            "the chain has another number of inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    std::vector<const void*> data;
    for (const py::array& x : inputs) data.push_back(x.data());
    for (size_t i = 0; i < outputs.size(); ++i) {
        require(shape_of(outputs[i]) == shape, "the shapes differ");
        data.push_back(output_data(outputs[i], chain->output_dtype(i)));
    }
    return bound(ChainCall{chain, Layout(outputs[0].size(), views_of(inputs, chain->inputs(), shape))},
                 data);
}

std::shared_ptr<Call> prologue_on(const std::shared_ptr<Chain>& chain, const py::array& input) {
    const std::vector<View> views = views_of({input}, chain->inputs(), shape_of(input));
    return bound(PrologueCall{chain, Layout(input.size(), views)}, {input.data()});
}

py::array random_array(uint64_t seed, uint64_t id, int64_t first, int64_t n) {
    py::array_t<uint32_t> words(n);
    uint32_t* const target = words.mutable_data();
    {
        const py::gil_scoped_release released;
        for (int64_t at = 0; at < n; at += tile_elements) {
            note_work(tile_elements);
            const int count = static_cast<int>(std::min<int64_t>(n - at, tile_elements));
            random_words({seed, id}, first + at, count, target + at);
        }
    }
    return words;
}

}  // namespace

void add_chains(py::module_& m) {
    py::class_<Chain, std::shared_ptr<Chain>>(m, "Chain")
        .def(py::init(&make_chain), py::arg("inputs"), py::arg("links"), py::arg("outputs"),
             py::arg("numerics"))
        .def_property_readonly("draws", &Chain::draws)
        .def_property_readonly("link_count", &Chain::link_count)
        .def("prologue_on", &prologue_on, py::arg("input"), Keeps<2>())
        .def("on", &chain_on, py::arg("inputs"), py::arg("outputs"), Keeps<2, 3>());
    m.def("random_words", &random_array, py::arg("seed"), py::arg("id"), py::arg("first"),
          py::arg("n"));
}

}  // namespace neuronsim
