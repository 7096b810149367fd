#include "graph/executable.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "movement/copy.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

// Steps are recorded on arrays that only stand for memory. A placement says where each of these
// stand-ins lies in a run: at an offset from one of the run's memories.
struct Standin {
    const char* begin;
    size_t memory;
    int64_t offset;
};

class Address {
public:
    Address() = default;
    explicit Address(const void* recorded) : recorded_(static_cast<const char*>(recorded)) {}

    void place(const std::vector<Standin>& standins) {
        const auto after =
            std::upper_bound(standins.begin(), standins.end(), recorded_,
                             [](const char* p, const Standin& s) { return p < s.begin; });
        if (after == standins.begin()) throw std::invalid_argument("a step has memory of its own");
        const Standin& s = *(after - 1);
        memory_ = s.memory;
        offset_ = s.offset + (recorded_ - s.begin);
    }
    char* in(char* const* memories) const { return memories[memory_] + offset_; }

private:
    const char* recorded_ = nullptr;
    size_t memory_ = 0;
    int64_t offset_ = 0;
};

struct Run {
    char* const* memories;
    PyObject* context;   // what Python functions get
    Observed* observed;  // the records of the program's steps, or null
};

class GraphStep {
public:
    explicit GraphStep(py::object kept) : kept_(std::move(kept)) {}
    GraphStep(const GraphStep&) = delete;
    GraphStep& operator=(const GraphStep&) = delete;
    virtual ~GraphStep() = default;
    virtual void place(const std::vector<Standin>& standins) = 0;
    virtual void run(const Run& run) const = 0;
    // How many records the step adds to, which are those from `first` on.
    virtual size_t record_count() const { return 0; }
    void set_first_record(size_t first) { first_record_ = first; }

protected:
    Observed* records(const Run& run) const {
        return run.observed == nullptr ? nullptr : run.observed + first_record_;
    }
    const py::object kept_;  // the programs and packed columns that the step reads

private:
    size_t first_record_ = 0;
};
using Steps = std::vector<std::shared_ptr<GraphStep>>;

void place_all(const Steps& steps, const std::vector<Standin>& standins) {
    for (const auto& s : steps) s->place(standins);
}
constexpr int64_t operations_of_step = 1024;  // at least a microsecond, however few its elements

void run_all(const Steps& steps, const Run& run) {
    for (const auto& s : steps) {
        note_work(operations_of_step);
        s->run(run);
    }
}

class Elementwise : public GraphStep {
public:
    Elementwise(py::object kept, const Chain& program, const std::vector<py::array>& inputs,
                std::vector<py::array> outputs)
        : GraphStep(std::move(kept)), program_(program) {
        if (outputs.empty() || program.draws() || inputs.size() != program.inputs().size() ||
            outputs.size() != program.output_count())
            throw std::invalid_argument("the program has other inputs or outputs");
        shape_ = shape_of(outputs[0]);
        count_ = element_count(shape_);
        views_ = views_of(inputs, codes_of(program.inputs()), shape_);
        for (const View& v : views_) inputs_.emplace_back(v.data);
        for (size_t i = 0; i < outputs.size(); ++i) {
            if (shape_of(outputs[i]) != shape_) throw std::invalid_argument("the shapes differ");
            outputs_.emplace_back(output_data(outputs[i], program.output_dtype(i)));
        }
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
        program_.run_collapsed(count_, shape_, views, outputs, 0, {}, records(run));
    }
    size_t record_count() const override { return program_.link_count(); }

private:
    const Chain& program_;
    std::vector<int64_t> shape_;
    int64_t count_;
    std::vector<View> views_;
    std::vector<Address> inputs_, outputs_;
};

// Observes a program that a product runs on an operand while it is packed, however often.
class Prologue : public GraphStep {
public:
    Prologue(py::object kept, const Chain& program, const py::array& input)
        : GraphStep(std::move(kept)), program_(program), shape_(shape_of(input)), at_(input.data()) {
        views_ = views_of({input}, codes_of(program.inputs()), shape_);
        count_ = element_count(shape_);
        collapse(shape_, views_);
    }
    void place(const std::vector<Standin>& standins) override { at_.place(standins); }
    void run(const Run& run) const override {
        if (run.observed == nullptr) return;
        View view = views_[0];
        view.data = at_.in(run.memories);
        program_.observe_collapsed(count_, shape_, view, records(run));
    }
    size_t record_count() const override { return program_.link_count(); }

private:
    const Chain& program_;
    std::vector<int64_t> shape_;
    int64_t count_;
    std::vector<View> views_;
    Address at_;
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

class Dot : public GraphStep {
public:
    Dot(py::object kept, const ProductCall& call)
        : GraphStep(std::move(kept)), call_(call), at_(call) {}
    void place(const std::vector<Standin>& standins) override { at_.place(standins); }
    void run(const Run& run) const override {
        ProductCall call = call_;
        at_.set(call, run.memories);
        call.result.observed = records(run);
        call.run({});
    }
    size_t record_count() const override { return records_of(call_.result); }

    static size_t records_of(const ProductResult& result) {
        return result.epilogue == nullptr ? 0 : 1 + result.epilogue->link_count();
    }

private:
    const ProductCall call_;
    ProductAddresses at_;
};

class ConvolutionStep : public GraphStep {
public:
    ConvolutionStep(py::object kept, const ConvolutionCall& call)
        : GraphStep(std::move(kept)), call_(call), at_(call.operands) {}
    void place(const std::vector<Standin>& standins) override { at_.place(standins); }
    void run(const Run& run) const override {
        ConvolutionCall call = call_;
        at_.set(call.operands, run.memories);
        call.operands.result.observed = records(run);
        call.run({});
    }
    size_t record_count() const override { return Dot::records_of(call_.operands.result); }

private:
    const ConvolutionCall call_;
    ProductAddresses at_;
};

// A reduction, of the whole axes or of windows.
template <class Call>
class ReduceStep : public GraphStep {
public:
    explicit ReduceStep(const Call& call)
        : GraphStep(py::none()),
          call_(call),
          input_(call.input.data),
          initial_(call.initial),
          output_(call.output) {}
    void place(const std::vector<Standin>& standins) override {
        input_.place(standins);
        initial_.place(standins);
        output_.place(standins);
    }
    void run(const Run& run) const override {
        Call call = call_;
        call.input.data = input_.in(run.memories);
        call.initial = initial_.in(run.memories);
        call.output = output_.in(run.memories);
        call.run();
    }

private:
    const Call call_;
    Address input_, initial_, output_;
};

class CopyStep : public GraphStep {
public:
    CopyStep(const py::array& source, py::array target)
        : GraphStep(py::none()),
          copy_(simplified({shape_of(target), strides_of(source), strides_of(target),
                            static_cast<int64_t>(target.itemsize())})),
          source_(source.data()),
          target_(target.mutable_data()) {
        if (shape_of(source) != shape_of(target) || source.itemsize() != target.itemsize())
            throw std::invalid_argument("the arrays of a copy differ");
    }
    void place(const std::vector<Standin>& standins) override {
        source_.place(standins);
        target_.place(standins);
    }
    void run(const Run& run) const override {
        run_copy(copy_, source_.in(run.memories), target_.in(run.memories));
    }

    static std::vector<int64_t> strides_of(const py::array& a) {
        return std::vector<int64_t>(a.strides(), a.strides() + a.ndim());
    }

private:
    const Copy copy_;
    Address source_, target_;
};

// An integer in memory, as dynamic-slice and conditional read it.
class Scalar {
public:
    Scalar(const py::array& array, int dtype) : dtype_(dtype_code(dtype)), at_(array.data()) {
        check_itemsize(array, dtype_);
        if (array.size() != 1) throw std::invalid_argument("an index is one element");
    }
    void place(const std::vector<Standin>& standins) { at_.place(standins); }
    // Clamped to [0, limit].
    int64_t clamped(char* const* memories, int64_t limit) const {
        const char* const p = at_.in(memories);
        switch (dtype_) {
            case DType::int8:
                return clamp(read<int8_t>(p), limit);
            case DType::int16:
                return clamp(read<int16_t>(p), limit);
            case DType::int32:
                return clamp(read<int32_t>(p), limit);
            case DType::int64:
                return clamp(read<int64_t>(p), limit);
            case DType::boolean:
            case DType::uint8:
                return clamp(read<uint8_t>(p), limit);
            case DType::uint16:
                return clamp(read<uint16_t>(p), limit);
            case DType::uint32:
                return clamp(read<uint32_t>(p), limit);
            case DType::uint64:
                return static_cast<int64_t>(std::min(read<uint64_t>(p), static_cast<uint64_t>(limit)));
            default:
                throw std::invalid_argument("an index is an integer");
        }
    }
    int64_t value(char* const* memories) const {
        return dtype_ == DType::boolean ? read<uint8_t>(at_.in(memories)) != 0
                                        : int64_t{read<int32_t>(at_.in(memories))};
    }

private:
    template <class T>
    static T read(const char* p) {
        T x;
        __builtin_memcpy(&x, p, sizeof x);
        return x;
    }
    static int64_t clamp(int64_t x, int64_t limit) { return x < 0 ? 0 : x > limit ? limit : x; }

    DType dtype_;
    Address at_;
};

// A copy whose source or target begins at indices that are known only when it runs: dynamic-slice and
// dynamic-update-slice, both clamped.
class DynamicCopy : public GraphStep {
public:
    DynamicCopy(const py::array& source, py::array target, std::vector<Scalar> starts,
                std::vector<int64_t> limits, bool moves_source)
        : GraphStep(py::none()),
          starts_(std::move(starts)),
          limits_(std::move(limits)),
          moves_source_(moves_source) {
        const py::array& moving = moves_source ? source : target;
        const py::array& window = moves_source ? target : source;
        if (starts_.size() != limits_.size() ||
            static_cast<py::ssize_t>(limits_.size()) != moving.ndim() ||
            moving.ndim() != window.ndim() || source.itemsize() != target.itemsize())
            throw std::invalid_argument("a dynamic slice has an index for each dimension");
        strides_ = CopyStep::strides_of(moving);
        copy_ = simplified({shape_of(window), CopyStep::strides_of(source),
                            CopyStep::strides_of(target), static_cast<int64_t>(source.itemsize())});
        source_ = Address(source.data());
        target_ = Address(target.mutable_data());
    }
    void place(const std::vector<Standin>& standins) override {
        for (Scalar& s : starts_) s.place(standins);
        source_.place(standins);
        target_.place(standins);
    }
    void run(const Run& run) const override {
        int64_t offset = 0;
        for (size_t d = 0; d < starts_.size(); ++d)
            offset += starts_[d].clamped(run.memories, limits_[d]) * strides_[d];
        run_copy(copy_, source_.in(run.memories) + (moves_source_ ? offset : 0),
                 target_.in(run.memories) + (moves_source_ ? 0 : offset));
    }

private:
    std::vector<Scalar> starts_;
    std::vector<int64_t> limits_, strides_;
    bool moves_source_;
    Copy copy_;
    Address source_, target_;
};

// What has no kernel for strided memory: a Python function of (context, inputs, outputs).
class PythonStep : public GraphStep {
public:
    PythonStep(py::object function, const std::vector<py::array>& inputs,
               const std::vector<py::array>& outputs)
        : GraphStep(std::move(function)) {
        for (const py::array& a : inputs) inputs_.push_back(described(a));
        for (const py::array& a : outputs) outputs_.push_back(described(a));
    }
    ~PythonStep() override {
        const py::gil_scoped_acquire acquired;
        inputs_.clear();
        outputs_.clear();
    }
    void place(const std::vector<Standin>& standins) override {
        for (Array& a : inputs_) a.at.place(standins);
        for (Array& a : outputs_) a.at.place(standins);
    }
    void run(const Run& run) const override {
        if (!is_due(run)) return;
        const py::gil_scoped_acquire acquired;
        const auto arrays = [&](const std::vector<Array>& described) {
            py::list list;
            for (const Array& a : described)
                // With a base, pybind11 copies nothing.
                list.append(py::array(a.dtype, a.shape, a.strides, a.at.in(run.memories),
                                      py::handle(run.context)));
            return list;
        };
        kept_(py::handle(run.context), arrays(inputs_), arrays(outputs_));
    }

protected:
    virtual bool is_due(const Run&) const { return true; }
    const char* input(const Run& run, size_t i) const { return inputs_[i].at.in(run.memories); }

private:
    struct Array {
        py::dtype dtype;
        std::vector<py::ssize_t> shape, strides;
        Address at;
    };
    static Array described(const py::array& a) {
        return {a.dtype(),
                {a.shape(), a.shape() + a.ndim()},
                {a.strides(), a.strides() + a.ndim()},
                Address(a.data())};
    }
    std::vector<Array> inputs_, outputs_;
};

// A Python function that says what an earlier step met. It is due if the first input, that step's
// result in dense memory, has Inf, NaN or, where asked for, a zero.
class Inspection : public PythonStep {
public:
    Inspection(py::object function, const std::vector<py::array>& inputs, DType dtype, bool zeros)
        : PythonStep(std::move(function), inputs, {}),
          dtype_(dtype),
          count_(static_cast<int64_t>(inputs.at(0).size())),
          zeros_(zeros) {
        if (!is_device_float(dtype)) throw std::invalid_argument("only floats are inspected");
        check_itemsize(inputs[0], dtype);
    }

protected:
    bool is_due(const Run& run) const override {
        if (run.observed == nullptr) return false;
        const Kernels& k = kernels();
        const char* const data = input(run, 0);
        const int size = storage_bytes(dtype_);
        std::atomic<bool> found = false;
        constexpr int64_t grain = 16 * tile_elements;
        parallel_for(count_, grain, [&](int64_t begin, int64_t end) {
            Tile tile;
            for (int64_t at = begin; at < end && !found; at += tile_elements) {
                const int n = static_cast<int>(std::min<int64_t>(end - at, tile_elements));
                note_work(n);
                k.load[static_cast<int>(dtype_)](data + at * size, size, n, &tile);
                if (k.special[zeros_](&tile, n)) found = true;
            }
        });
        return found;
    }

private:
    DType dtype_;
    int64_t count_;
    bool zeros_;
};

// The same for a product's sums, which only its epilogue saw: due if their record says that some are
// Inf or NaN. The function takes over what that says.
class SumsInspection : public PythonStep {
public:
    SumsInspection(py::object function, const std::vector<py::array>& inputs)
        : PythonStep(std::move(function), inputs, {}) {}

protected:
    bool is_due(const Run& run) const override {
        Observed* const sums = records(run);
        if (sums == nullptr || sums->overflow == 0) return false;
        sums->overflow = 0;
        return true;
    }
};

class While : public GraphStep {
public:
    While(Steps condition, Scalar goes_on, Steps body, const py::array& trips)
        : GraphStep(py::none()),
          condition_(std::move(condition)),
          goes_on_(goes_on),
          body_(std::move(body)),
          trips_(trips.data()) {
        check_itemsize(trips, DType::int64);
    }
    void place(const std::vector<Standin>& standins) override {
        place_all(condition_, standins);
        goes_on_.place(standins);
        place_all(body_, standins);
        trips_.place(standins);
    }
    void run(const Run& run) const override {
        char* const count = trips_.in(run.memories);
        for (int64_t trip = 0;; ++trip) {
            __builtin_memcpy(count, &trip, sizeof trip);
            note_work(operations_of_step);
            run_all(condition_, run);
            if (goes_on_.value(run.memories) == 0) return;
            run_all(body_, run);
        }
    }

private:
    const Steps condition_;
    Scalar goes_on_;
    const Steps body_;
    Address trips_;
};

class Conditional : public GraphStep {
public:
    Conditional(Scalar index, std::vector<Steps> branches)
        : GraphStep(py::none()), index_(index), branches_(std::move(branches)) {
        if (branches_.empty()) throw std::invalid_argument("a conditional has branches");
    }
    void place(const std::vector<Standin>& standins) override {
        index_.place(standins);
        for (const Steps& b : branches_) place_all(b, standins);
    }
    void run(const Run& run) const override {
        // An index that is no branch's takes the last one.
        const int64_t index = index_.value(run.memories),
                      last = static_cast<int64_t>(branches_.size()) - 1;
        run_all(branches_[static_cast<size_t>(index < 0 || index > last ? last : index)], run);
    }

private:
    Scalar index_;
    const std::vector<Steps> branches_;
};

using Clock = std::chrono::steady_clock;

// The context of the program that this thread runs: its `check` may end the run, as another replica's
// failure does.
thread_local PyObject* context_of_thread = nullptr;
class RunOfThread {
public:
    explicit RunOfThread(PyObject* context) : outer_(context_of_thread) { context_of_thread = context; }
    ~RunOfThread() { context_of_thread = outer_; }
    RunOfThread(const RunOfThread&) = delete;
    RunOfThread& operator=(const RunOfThread&) = delete;

private:
    PyObject* const outer_;
};

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

// Signals are the main thread's; in others Python's check does nothing. The pool's threads are not
// Python's.
void check_signals() {
    if (PyGILState_GetThisThreadState() == nullptr || is_finalizing()) return;
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (context_of_thread != nullptr && context_of_thread != Py_None)
        py::handle(context_of_thread).attr("check")();
}

class Executable {
public:
    // `standins`: (array, memory, offset) for each array that a step was recorded on.
    // `records` is how many there are of all steps, those of loops and branches as well.
    Executable(Steps steps, const std::vector<std::tuple<py::array, size_t, int64_t>>& standins,
               size_t records)
        : steps_(std::move(steps)), records_(records) {
        std::vector<Standin> sorted;
        for (const auto& [array, memory, offset] : standins) {
            memories_ = std::max(memories_, memory + 1);
            sorted.push_back({static_cast<const char*>(array.data()), memory, offset});
        }
        std::sort(sorted.begin(), sorted.end(),
                  [](const Standin& a, const Standin& b) { return a.begin < b.begin; });
        place_all(steps_, sorted);
    }

    // Memory 0 is everything: offsets in it are addresses. Returns nanoseconds by step if asked to.
    // `records` receives what the steps met, a row for each record, or is None.
    std::vector<int64_t> run(const std::vector<py::array>& arrays, const py::object& context,
                             bool timed, const py::object& records) const {
        std::vector<char*> memories{nullptr};
        for (const py::array& a : arrays)
            memories.push_back(static_cast<char*>(const_cast<void*>(a.data())));
        if (memories.size() < memories_) throw std::invalid_argument("a memory is missing");
        const Run run{memories.data(), context.ptr(), records_in(records, records_)};
        std::vector<int64_t> times;
        const RunOfThread stoppable(run.context);
        const py::gil_scoped_release released;
        Clock::time_point last = Clock::now();
        for (const auto& step : steps_) {
            note_work(operations_of_step);
            step->run(run);
            if (!timed) continue;
            const Clock::time_point now = Clock::now();
            times.push_back(std::chrono::nanoseconds(now - last).count());
            last = now;
        }
        return times;
    }

private:
    const Steps steps_;
    const size_t records_;
    size_t memories_ = 1;
};

using Index = std::pair<py::array, int>;
std::vector<Scalar> scalars(const std::vector<Index>& indices) {
    std::vector<Scalar> found;
    for (const auto& [array, dtype] : indices) found.emplace_back(array, dtype);
    return found;
}

}  // namespace

void add_executable(py::module_& m) {
    set_signal_check(&check_signals);
    py::class_<GraphStep, std::shared_ptr<GraphStep>>(m, "Step")
        .def_property_readonly("record_count", &GraphStep::record_count)
        .def("set_first_record", &GraphStep::set_first_record, py::arg("first"));
    using Made = std::shared_ptr<GraphStep>;
    m.def(
        "record_elementwise",
        [](const py::object& program, const std::vector<py::array>& inputs,
           const std::vector<py::array>& outputs) -> Made {
            return std::make_shared<Elementwise>(program, program.cast<const Chain&>(), inputs,
                                                 outputs);
        },
        py::arg("program"), py::arg("inputs"), py::arg("outputs"));
    m.def("record_dot",
          [](const py::array& a, int a_dtype, int a_vectors, const py::object& a_program,
             const py::array& b, int b_dtype, int b_vectors, const py::object& b_program, int batch,
             const py::array& output, int result_dtype, const std::string& accumulate,
             int accumulate_dtype, int64_t tile, const Numerics& numerics, const py::object& packed,
             const py::object& epilogue, const std::vector<py::array>& terms) -> Made {
              return std::make_shared<Dot>(
                  py::make_tuple(a_program, b_program, packed, epilogue),
                  make_product(a, a_dtype, a_vectors, a_program.cast<const Chain*>(), b, b_dtype,
                               b_vectors, b_program.cast<const Chain*>(), batch, output, result_dtype,
                               accumulate, accumulate_dtype, tile, numerics,
                               packed.cast<const PackedColumns*>(), epilogue.cast<const Chain*>(),
                               terms));
          });
    m.def("record_convolution",
          [](const py::array& x, int x_dtype, const py::object& x_program, const py::array& w,
             int w_dtype, const py::object& w_program, const ConvolutionWindow& window,
             int64_t feature_groups, int64_t batch_groups, const py::array& output, int result_dtype,
             const std::string& accumulate, int accumulate_dtype, int64_t tile,
             const Numerics& numerics, const py::object& packed, const py::object& epilogue,
             const std::vector<py::array>& terms) -> Made {
              return std::make_shared<ConvolutionStep>(
                  py::make_tuple(x_program, w_program, packed, epilogue),
                  make_convolution(x, x_dtype, x_program.cast<const Chain*>(), w, w_dtype,
                                   w_program.cast<const Chain*>(), window, feature_groups, batch_groups,
                                   output, result_dtype, accumulate, accumulate_dtype, tile, numerics,
                                   packed.cast<const PackedColumns*>(), epilogue.cast<const Chain*>(),
                                   terms));
          });
    m.def("record_reduce",
          [](const Reduction& reduction, const py::array& input, int kept, const py::array& initial,
             const py::array& output) -> Made {
              return std::make_shared<ReduceStep<ReduceCall>>(
                  make_reduce(reduction, input, kept, initial, output, 0));
          });
    m.def("record_reduce_windows",
          [](const Reduction& reduction, const WindowRows& window, const py::array& input,
             const py::array& initial, const py::array& output) -> Made {
              return std::make_shared<ReduceStep<WindowsCall>>(
                  make_reduce_windows(reduction, window, input, initial, output));
          });
    m.def("record_copy", [](const py::array& source, const py::array& target) -> Made {
        return std::make_shared<CopyStep>(source, target);
    });
    m.def("record_dynamic_copy",
          [](const py::array& source, const py::array& target, const std::vector<Index>& starts,
             const std::vector<int64_t>& limits, bool moves_source) -> Made {
              return std::make_shared<DynamicCopy>(source, target, scalars(starts), limits,
                                                   moves_source);
          });
    m.def("record_python",
          [](const py::object& function, const std::vector<py::array>& inputs,
             const std::vector<py::array>& outputs) -> Made {
              return std::make_shared<PythonStep>(function, inputs, outputs);
          });
    m.def("record_prologue", [](const py::object& program, const py::array& input) -> Made {
        return std::make_shared<Prologue>(program, program.cast<const Chain&>(), input);
    });
    m.def("record_inspection",
          [](const py::object& function, const std::vector<py::array>& inputs, int dtype,
             bool zeros) -> Made {
              return std::make_shared<Inspection>(function, inputs, dtype_code(dtype), zeros);
          });
    m.def("record_sums_inspection",
          [](const py::object& function, const std::vector<py::array>& inputs) -> Made {
              return std::make_shared<SumsInspection>(function, inputs);
          });
    m.def("record_while",
          [](const Steps& condition, const Index& goes_on, const Steps& body,
             const py::array& trips) -> Made {
              return std::make_shared<While>(condition, Scalar(goes_on.first, goes_on.second), body,
                                             trips);
          });
    m.def("record_conditional", [](const Index& index, const std::vector<Steps>& branches) -> Made {
        return std::make_shared<Conditional>(Scalar(index.first, index.second), branches);
    });
    py::class_<Executable>(m, "Executable")
        .def(py::init<Steps, const std::vector<std::tuple<py::array, size_t, int64_t>>&, size_t>(),
             py::arg("steps"), py::arg("standins"), py::arg("records") = 0)
        .def("run", &Executable::run, py::arg("memories"), py::arg("context"), py::arg("timed"),
             py::arg("records") = py::none());
}

}  // namespace neuronsim
