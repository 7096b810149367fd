#include <algorithm>
#include <stdexcept>

#include "bindings/bindings.h"
#include "bindings/views.h"
#include "graph/kernel_calls.h"
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

// The places of a chain's outputs, all of one shape.
std::vector<char*> targets_of(const Chain& chain, std::vector<py::array>& outputs) {
    std::vector<char*> targets;
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (shape_of(outputs[i]) != shape_of(outputs[0]))
            throw std::invalid_argument("the shapes differ");
        targets.push_back(output_data(outputs[i], chain.output_dtype(i)));
    }
    return targets;
}

bool has_operands(const Chain& chain, const std::vector<py::array>& inputs,
                  const std::vector<py::array>& outputs) {
    return inputs.size() == chain.inputs().size() && outputs.size() == chain.output_count() &&
           !outputs.empty();
}

void run_chain(const Chain& chain, const std::vector<py::array>& inputs, std::vector<py::array> outputs,
               uint64_t seed, const std::vector<uint64_t>& ids, const py::object& records) {
    if (!has_operands(chain, inputs, outputs))
        throw std::invalid_argument("the program has another number of inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    const std::vector<View> views = views_of(inputs, chain.inputs(), shape);
    const std::vector<char*> targets = targets_of(chain, outputs);
    Observed* const observed = records_in(records, chain.link_count());
    const py::gil_scoped_release released;
    chain.run(shape, views, targets, seed, ids, observed);
}

std::shared_ptr<Call> record_elementwise(const std::shared_ptr<Chain>& chain,
                                         const std::vector<py::array>& inputs,
                                         std::vector<py::array> outputs) {
    if (chain->draws() || !has_operands(*chain, inputs, outputs))
        throw std::invalid_argument("the program has other inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    return placed(chain, shape, views_of(inputs, chain->inputs(), shape), targets_of(*chain, outputs));
}

std::shared_ptr<Call> record_prologue(const std::shared_ptr<Chain>& chain, const py::array& input) {
    const std::vector<int64_t> shape = shape_of(input);
    return placed(chain, shape, views_of({input}, chain->inputs(), shape), {});
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
    py::class_<Chain, std::shared_ptr<Chain>>(m, "TileProgram")
        .def(py::init(&make_chain), py::arg("inputs"), py::arg("steps"), py::arg("outputs"),
             py::arg("numerics"))
        .def("draws", &Chain::draws)
        .def_property_readonly("step_count", &Chain::link_count)
        .def("run", &run_chain, py::arg("inputs"), py::arg("outputs"), py::arg("seed") = 0,
             py::arg("ids") = std::vector<uint64_t>(), py::arg("records") = py::none());
    m.def("record_elementwise", &record_elementwise, py::arg("program"), py::arg("inputs"),
          py::arg("outputs"));
    m.def("record_prologue", &record_prologue, py::arg("program"), py::arg("input"));
    m.def("random_words", &random_array, py::arg("seed"), py::arg("id"), py::arg("first"),
          py::arg("n"));
}

}  // namespace neuronsim
