// oneDNN on the CPU: batch norm over NCX, layer and RMS norm as operations of its graphs, group and instance norm over
// NCX as primitives. Checked against float64 loops on a small shape, then timed from submission to completion. Built and
// run by onednn.sh.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_graph.hpp"

namespace dg = dnnl::graph;
using dims = dg::logical_tensor::dims;

namespace {

constexpr float epsilon = 1e-5f;

// The batch's part of running statistics is 1 - momentum.
constexpr float momentum = 0.9f;

// An operation's tensors.
enum slot {
    src,
    diff_dst,
    mean,
    variance,
    gamma,
    beta,
    running_mean,
    running_variance,
    dst,
    diff_src,
    diff_gamma,
    diff_beta,
    new_running_mean,
    new_running_variance,
    slots
};

struct operation {
    std::string name;
    dg::op::kind kind;
    // In oneDNN's order; the first output is of src's size.
    std::vector<slot> inputs, outputs;

    bool gradient() const { return outputs[0] == diff_src; }
    bool is(const char *layer) const { return name.rfind(layer, 0) == 0; }
    // Batch norm normalizes channels, group and instance norm groups of a sample's channels, the others rows.
    bool channels() const { return is("batch_norm"); }
    bool of_samples() const { return is("group_norm") || is("instance_norm"); }
    bool rows() const { return !channels() && !of_samples(); }
    // RMS norm subtracts no mean.
    bool centers() const { return kind != dg::op::kind::RMSNorm; }
};

// oneDNN has no gradient of RMS norm. Its instance norm is group norm with a group for each channel; graphs have no
// gradient of either.
const std::vector<operation> operations = {
        {"batch_norm", dg::op::kind::BatchNormTrainingBackward, {src, diff_dst, mean, variance, gamma},
                {diff_src, diff_gamma, diff_beta}},
        {"layer_norm", dg::op::kind::LayerNormBackward, {src, diff_dst, mean, variance, gamma, beta},
                {diff_src, diff_gamma, diff_beta}},
        {"batch_norm_forward", dg::op::kind::BatchNormForwardTraining,
                {src, running_mean, running_variance, gamma, beta},
                {dst, new_running_mean, new_running_variance, mean, variance}},
        {"batch_norm_inference", dg::op::kind::BatchNormInference, {src, gamma, beta, mean, variance}, {dst}},
        {"layer_norm_forward", dg::op::kind::LayerNorm, {src, gamma, beta}, {dst, mean, variance}},
        {"rms_norm_forward", dg::op::kind::RMSNorm, {src, gamma}, {dst}},
        {"group_norm", dg::op::kind::GroupNorm, {src, diff_dst, mean, variance, gamma},
                {diff_src, diff_gamma, diff_beta}},
        {"instance_norm", dg::op::kind::GroupNorm, {src, diff_dst, mean, variance, gamma},
                {diff_src, diff_gamma, diff_beta}},
        {"group_norm_forward", dg::op::kind::GroupNorm, {src, gamma, beta}, {dst, mean, variance}},
        {"instance_norm_forward", dg::op::kind::GroupNorm, {src, gamma, beta}, {dst, mean, variance}},
};

// The same shapes as in src/case.rs.
const std::vector<dims> channels_shapes = {
        {32, 64, 56, 56},
        {32, 256, 14, 14},
        {4, 64, 112, 112},
        {8, 512, 28, 28},
        {16, 1024, 14, 14},
        {2, 3, 512, 512},
        {4096, 256},
        {4, 32, 64, 64, 64},
};
const std::vector<dims> rows_shapes = {{4096, 768}, {512, 4096}, {65536, 64}};
const std::vector<dims> of_samples_shapes = {{8, 256, 64, 64}, {32, 64, 56, 56}, {2, 320, 64, 64}, {8, 1280, 16, 16}};

struct norm_case {
    operation op;
    dims shape;

    int64_t elements() const {
        int64_t product = 1;
        for (auto size : shape) product *= size;
        return product;
    }
    int64_t inner() const {
        int64_t product = 1;
        for (size_t axis = 2; !op.rows() && axis < shape.size(); ++axis) product *= shape[axis];
        return product;
    }
    int64_t channels() const { return op.rows() ? shape.back() : shape[1]; }
    // Groups of a sample's channels: of instance norm one for each, of group norm 32 or the most below that divide them.
    int64_t channel_groups() const {
        if (op.is("instance_norm")) return channels();
        int64_t groups = std::min<int64_t>(channels(), 32);
        while (channels() % groups != 0) --groups;
        return groups;
    }
    // Of mean and variance: a channel's, a row's or a group's.
    dims statistics() const {
        if (op.channels()) return {shape[1]};
        if (op.of_samples()) return {shape[0], channel_groups()};
        return dims(shape.begin(), shape.end() - 1);
    }
    int64_t groups() const {
        int64_t product = 1;
        for (auto size : statistics()) product *= size;
        return product;
    }
    int64_t channel(int64_t i) const { return i / inner() % channels(); }
    // Elements of a row or of a group lie side by side.
    int64_t group(int64_t i) const { return op.channels() ? channel(i) : i / (elements() / groups()); }

    std::string shape_name() const {
        std::string name;
        for (auto size : shape) name += (name.empty() ? "" : "x") + std::to_string(size);
        return name;
    }
};

struct host_tensors {
    std::vector<float> of[slots];
};

host_tensors made_up(const norm_case &c) {
    uint64_t state = 1;
    auto random = [&](int64_t count, float low, float high) {
        std::vector<float> values;
        for (int64_t i = 0; i < count; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const float part = static_cast<float>(state >> 40) / static_cast<float>(1u << 24); // in [0, 1)
            values.push_back(low + (high - low) * part);
        }
        return values;
    };
    host_tensors t;
    t.of[src] = random(c.elements(), -0.5f, 1.5f);
    if (c.op.gradient()) t.of[diff_dst] = random(c.elements(), -1.0f, 1.0f);
    t.of[gamma] = random(c.channels(), 0.5f, 1.5f);
    t.of[beta] = c.op.centers() ? random(c.channels(), -1.0f, 1.0f) : std::vector<float>(c.channels());
    t.of[running_mean] = random(c.channels(), -1.0f, 1.0f);
    t.of[running_variance] = random(c.channels(), 0.5f, 1.5f);
    const double count = static_cast<double>(c.elements()) / static_cast<double>(c.groups());
    std::vector<double> m(c.groups()), v(c.groups());
    for (int64_t i = 0; c.op.centers() && i < c.elements(); ++i) m[c.group(i)] += t.of[src][i] / count;
    for (int64_t i = 0; i < c.elements(); ++i) {
        const double x = t.of[src][i] - m[c.group(i)];
        v[c.group(i)] += x * x / count;
    }
    t.of[mean].assign(m.begin(), m.end());
    t.of[variance].assign(v.begin(), v.end());
    return t;
}

// What can be an output, in float64, by the operators' definitions.
struct reference {
    std::vector<double> of[slots];

    reference(const norm_case &c, const host_tensors &t) {
        const int64_t n = c.elements();
        const double count = static_cast<double>(n) / static_cast<double>(c.groups());
        std::vector<double> scale(c.groups()), offset(c.groups()), slope(c.groups());
        for (int64_t g = 0; g < c.groups(); ++g)
            scale[g] = 1.0 / std::sqrt(static_cast<double>(t.of[variance][g]) + epsilon);
        auto normalized = [&](int64_t i) {
            const int64_t g = c.group(i);
            return (static_cast<double>(t.of[src][i]) - t.of[mean][g]) * scale[g];
        };
        if (!c.op.gradient()) {
            for (int64_t i = 0; i < n; ++i)
                of[dst].push_back(normalized(i) * t.of[gamma][c.channel(i)] + t.of[beta][c.channel(i)]);
            of[mean].assign(t.of[mean].begin(), t.of[mean].end());
            of[variance].assign(t.of[variance].begin(), t.of[variance].end());
            auto running = [&](slot old, slot batch, slot result) {
                for (int64_t i = 0; c.op.channels() && i < c.channels(); ++i)
                    of[result].push_back(momentum * t.of[old][i] + (1.0 - momentum) * t.of[batch][i]);
            };
            running(running_mean, mean, new_running_mean);
            running(running_variance, variance, new_running_variance);
            return;
        }
        auto scaled = [&](int64_t i) {
            return static_cast<double>(t.of[diff_dst][i]) * t.of[gamma][c.channel(i)];
        };
        of[diff_gamma].resize(c.channels());
        of[diff_beta].resize(c.channels());
        for (int64_t i = 0; i < n; ++i) {
            of[diff_gamma][c.channel(i)] += t.of[diff_dst][i] * normalized(i);
            of[diff_beta][c.channel(i)] += t.of[diff_dst][i];
            offset[c.group(i)] += scaled(i) / count;
            slope[c.group(i)] += scaled(i) * normalized(i) / count;
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t g = c.group(i);
            of[diff_src].push_back(scale[g] * (scaled(i) - offset[g] - normalized(i) * slope[g]));
        }
    }
};

// An operator with several sets of tensors.
class layer {
public:
    virtual ~layer() = default;

    // Milliseconds of one execution, on the next set.
    double run() {
        const size_t set = next_++ % sets_;
        const auto start = std::chrono::steady_clock::now();
        execute(set);
        const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
        return time.count();
    }

    // An output of the first set, by its place.
    virtual std::vector<float> output(size_t place) const = 0;

protected:
    explicit layer(size_t sets) : sets_(sets) {}

    // Until it is done.
    virtual void execute(size_t set) = 0;

private:
    size_t sets_, next_ = 0;
};

// A compiled operation of a graph.
class graph_layer : public layer {
public:
    graph_layer(const norm_case &c, const host_tensors &t, const dnnl::engine &engine, int sets)
        : layer(sets), stream_(engine) {
        auto logical = [&](slot s) {
            const bool whole = s == src || s == diff_dst || s == dst || s == diff_src;
            const bool statistic = s == mean || s == variance;
            return dg::logical_tensor(s, dg::logical_tensor::data_type::f32,
                    whole ? c.shape : statistic ? c.statistics() : dims {c.channels()},
                    dg::logical_tensor::layout_type::strided);
        };
        std::vector<dg::logical_tensor> ins, outs;
        for (auto s : c.op.inputs) ins.push_back(logical(s));
        for (auto s : c.op.outputs) outs.push_back(logical(s));

        dg::op op(0, c.op.kind, ins, outs, "norm");
        op.set_attr<float>(dg::op::attr::epsilon, epsilon);
        if (c.op.channels())
            op.set_attr<std::string>(dg::op::attr::data_format, "NCX");
        else
            op.set_attr<int64_t>(dg::op::attr::begin_norm_axis, -1);
        if (c.op.kind == dg::op::kind::BatchNormForwardTraining)
            op.set_attr<float>(dg::op::attr::momentum, momentum);
        dg::graph graph(dnnl::engine::kind::cpu);
        graph.add_op(op);
        graph.finalize();
        const auto partitions = graph.get_partitions();
        if (partitions.size() != 1 || !partitions[0].is_supported())
            throw std::runtime_error("oneDNN does not support this shape");
        compiled_ = partitions[0].compile(ins, outs, engine);

        for (int set = 0; set < sets; ++set) {
            // oneDNN allocates: its SYCL runtime wants memory that it knows.
            ins_.emplace_back();
            for (size_t i = 0; i < ins.size(); ++i) {
                dg::tensor tensor(ins[i], engine);
                const auto &values = t.of[c.op.inputs[i]];
                std::memcpy(tensor.get_data_handle(), values.data(), 4 * values.size());
                ins_.back().push_back(tensor);
            }
            outs_.emplace_back();
            for (const auto &out : outs) outs_.back().emplace_back(out, engine);
        }
    }

    std::vector<float> output(size_t place) const override {
        const auto &tensor = outs_[0][place];
        const auto *values = static_cast<const float *>(tensor.get_data_handle());
        return {values, values + tensor.get_logical_tensor().get_mem_size() / sizeof(float)};
    }

protected:
    void execute(size_t set) override {
        compiled_.execute(stream_, ins_[set], outs_[set]);
        stream_.wait();
    }

private:
    dnnl::stream stream_;
    dg::compiled_partition compiled_;
    std::vector<std::vector<dg::tensor>> ins_, outs_;
};

// A primitive of group norm.
class group_norm_layer : public layer {
public:
    group_norm_layer(const norm_case &c, const host_tensors &t, const dnnl::engine &engine, int sets)
        : layer(sets), outputs_(c.op.outputs), stream_(engine) {
        using dnnl::memory;
        const auto desc = [](const dims &shape) {
            // Row major.
            dims strides(shape.size(), 1);
            for (size_t axis = shape.size() - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * shape[axis];
            return memory::desc(shape, memory::data_type::f32, strides);
        };
        const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
        const auto whole = desc(c.shape);
        const dnnl::group_normalization_forward::primitive_desc forward(engine, dnnl::prop_kind::forward_training, whole,
                whole, c.channel_groups(), epsilon, flags);
        if (c.op.gradient())
            primitive_ = dnnl::group_normalization_backward({engine, dnnl::prop_kind::backward, whole, whole, whole,
                    c.channel_groups(), epsilon, flags, forward});
        else
            primitive_ = dnnl::group_normalization_forward(forward);

        for (int set = 0; set < sets; ++set) {
            sets_.emplace_back();
            const auto add = [&](slot s) {
                const bool big = s == src || s == diff_dst || s == dst || s == diff_src;
                const bool statistic = s == mean || s == variance;
                memory tensor(big ? whole : desc(statistic ? c.statistics() : dims {c.channels()}), engine);
                sets_.back().emplace(argument(s), tensor);
                return tensor;
            };
            for (auto s : c.op.inputs) {
                const auto tensor = add(s);
                float *values = tensor.map_data<float>();
                std::copy(t.of[s].begin(), t.of[s].end(), values);
                tensor.unmap_data(values);
            }
            for (auto s : c.op.outputs) add(s);
        }
    }

    std::vector<float> output(size_t place) const override {
        const auto &tensor = sets_[0].at(argument(outputs_[place]));
        float *mapped = tensor.map_data<float>();
        std::vector<float> values(mapped, mapped + tensor.get_desc().get_size() / sizeof(float));
        tensor.unmap_data(mapped);
        return values;
    }

protected:
    void execute(size_t set) override {
        primitive_.execute(stream_, sets_[set]);
        stream_.wait();
    }

private:
    static int argument(slot s) {
        switch (s) {
            case src: return DNNL_ARG_SRC;
            case diff_dst: return DNNL_ARG_DIFF_DST;
            case mean: return DNNL_ARG_MEAN;
            case variance: return DNNL_ARG_VARIANCE;
            case gamma: return DNNL_ARG_SCALE;
            case beta: return DNNL_ARG_SHIFT;
            case dst: return DNNL_ARG_DST;
            case diff_src: return DNNL_ARG_DIFF_SRC;
            case diff_gamma: return DNNL_ARG_DIFF_SCALE;
            case diff_beta: return DNNL_ARG_DIFF_SHIFT;
            default: throw std::logic_error("group norm has no running statistics");
        }
    }

    std::vector<slot> outputs_;
    dnnl::stream stream_;
    dnnl::primitive primitive_;
    std::vector<std::unordered_map<int, dnnl::memory>> sets_;
};

std::unique_ptr<layer> make_layer(const norm_case &c, const host_tensors &t, const dnnl::engine &engine, int sets) {
    if (c.op.of_samples()) return std::make_unique<group_norm_layer>(c, t, engine, sets);
    return std::make_unique<graph_layer>(c, t, engine, sets);
}

// Whether oneDNN computes what the operator's definition says, on a small shape of the same rank, with groups of as many
// channels.
void check(norm_case c, const dnnl::engine &engine) {
    for (size_t axis = 0; axis < c.shape.size(); ++axis)
        if (axis != 1 || !c.op.of_samples())
            c.shape[axis] = std::min<int64_t>(c.shape[axis], 9 - static_cast<int64_t>(axis));
    const auto tensors = made_up(c);
    const reference want(c, tensors);
    const auto one = make_layer(c, tensors, engine, 1);
    one->run();
    for (size_t place = 0; place < c.op.outputs.size(); ++place) {
        const auto &wanted = want.of[c.op.outputs[place]];
        const auto got = one->output(place);
        double scale = 0.0, difference = 0.0;
        for (size_t i = 0; i < wanted.size(); ++i) {
            const double d = std::abs(got.at(i) - wanted[i]);
            if (!(d <= difference)) difference = d; // so that NaN stays
            scale = std::max(scale, std::abs(wanted[i]));
        }
        if (!(difference <= 1e-4 * scale))
            throw std::runtime_error("output " + std::to_string(place) + " of " + c.op.name + " " + c.shape_name()
                    + " is wrong by " + std::to_string(difference));
    }
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

// The median of the rounds' medians, or the least of all times.
double measure(const norm_case &c, const dnnl::engine &engine, int rounds, bool least) {
    const auto statistic = [&](const std::vector<double> &times) {
        return least ? *std::min_element(times.begin(), times.end()) : median(times);
    };
    const auto sets = std::clamp<int64_t>((256ll << 20) / ((c.op.gradient() ? 12 : 8) * c.elements()), 1, 8);
    const auto timed = make_layer(c, made_up(c), engine, static_cast<int>(sets));
    timed->run();
    const double warm = std::min(timed->run(), timed->run());
    const int runs = static_cast<int>(std::clamp(30.0 / warm, 1.0, 20.0));
    std::vector<double> of_rounds;
    for (int round = 0; round < rounds; ++round) {
        std::vector<double> times;
        for (int run = 0; run < runs; ++run) times.push_back(timed->run());
        of_rounds.push_back(statistic(times));
    }
    return statistic(of_rounds);
}

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "CPU";
}

std::string quoted(const std::string &text) {
    std::string result = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + "\"";
}

dims parse(const std::string &text) {
    dims shape;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, 'x');) {
        shape.push_back(part.find_first_not_of("0123456789") == std::string::npos ? std::atoll(part.c_str()) : 0);
        if (shape.back() < 1) throw std::invalid_argument("not a shape: " + text);
    }
    if (shape.size() < 2) throw std::invalid_argument("not a shape: " + text);
    return shape;
}

// Each operation, or gradient where none is named, with each shape, or its default ones.
std::vector<norm_case> cases_of(const std::vector<std::string> &names, const std::vector<dims> &shapes) {
    std::vector<norm_case> cases;
    for (const auto &op : operations) {
        const bool named = std::find(names.begin(), names.end(), op.name) != names.end();
        if (names.empty() ? !op.gradient() : !named) continue;
        const auto &defaults = op.channels() ? channels_shapes : op.rows() ? rows_shapes : of_samples_shapes;
        for (const auto &shape : shapes.empty() ? defaults : shapes) cases.push_back({op, shape});
    }
    return cases;
}

int run(int argc, char **argv) {
    std::string json;
    std::vector<std::string> ops;
    std::vector<dims> shapes;
    int rounds = 5;
    bool least = false;
    const auto known = [](const std::string &name) {
        return std::any_of(operations.begin(), operations.end(), [&](const operation &op) { return name == op.name; });
    };
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        if (option == "--least") {
            least = true;
            continue;
        }
        if (i + 1 == argc)
            throw std::invalid_argument("usage: [--json FILE] [--op OP]... [--shape SHAPE]... [--rounds N] [--least]");
        const std::string value = argv[++i];
        if (option == "--json")
            json = value;
        else if (option == "--op" && known(value))
            ops.push_back(value);
        else if (option == "--shape")
            shapes.push_back(parse(value));
        else if (option == "--rounds")
            rounds = std::max(1, std::atoi(value.c_str()));
        else
            throw std::invalid_argument("unknown option: " + option + " " + value);
    }

    if (ops.empty() && !shapes.empty()) throw std::invalid_argument("--shape needs --op");
    const auto cases = cases_of(ops, shapes);
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const auto *version = dnnl_version();
    std::ostringstream number;
    number << version->major << '.' << version->minor << '.' << version->patch;
    const unsigned threads = std::thread::hardware_concurrency();
    const std::string driver = (version->cpu_runtime == DNNL_RUNTIME_SYCL ? "SYCL" : "native")
            + std::string(" CPU runtime, ") + std::to_string(threads) + " threads";
    std::cout << "oneDNN " << number.str() << " on " << cpu_name() << ", " << driver << std::endl;

    std::ostringstream results;
    bool failed = false;
    for (const auto &c : cases) {
        std::cout << c.op.name << ' ' << c.shape_name() << std::flush;
        double time = 0.0;
        try {
            check(c, engine);
            time = measure(c, engine, rounds, least);
        } catch (const std::exception &error) { // the other shapes are still worth their time
            std::cout << "  not timed: " << error.what() << std::endl;
            failed = true;
            continue;
        }
        std::cout << "  " << time << " ms" << std::endl;
        results << (results.tellp() > 0 ? ",\n    " : "\n    ") << "{\"op\": \"" << c.op.name
                << "\", \"shape\": \"" << c.shape_name() << "\", \"dtype\": \"f32\", \"data_format\": "
                << (c.op.rows() ? "null" : "\"NCX\"") << ", \"time_ms\": " << time << ", \"variant\": \""
                << (c.op.of_samples() ? "primitive" : "graph") << "\"}";
    }
    if (!json.empty()) {
        char date[16];
        const std::time_t now = std::time(nullptr);
        std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
        std::ofstream file(json);
        file << "{\n  \"peer\": \"oneDNN\",\n  \"version\": \"" << number.str() << "\",\n  \"device\": "
             << quoted(cpu_name()) << ",\n  \"driver\": " << quoted(driver) << ",\n  \"date\": \"" << date << (least ? "\",\n  \"times\": \"minima" : "")
             << "\",\n  \"results\": [" << results.str() << "\n  ]\n}\n";
        if (!file.flush()) throw std::runtime_error("writing " + json + " failed");
    }
    return failed ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << std::endl;
        return 1;
    }
}
