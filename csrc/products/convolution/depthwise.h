// The inner loops of depthwise convolution (M5): sums of neighbouring channels, each with weights of
// its own, and of neighbouring places of one channel, all with the same. Included inside each
// instruction set's namespace.

template <int Places>
inline void sum_channels(const char* data, ptrdiff_t step, const int64_t* places, int64_t window,
                         int64_t tile, const float* weights, int64_t weight_pitch, int n, float* sums,
                         int64_t pitch) {
    Vec psum[Places], acc[Places];
    for (Vec& v : psum) v = Vec::zero();
    for (int64_t at = 0; at < window;) {
        const int64_t end = at + tile < window ? at + tile : window;
        for (Vec& v : acc) v = Vec::zero();
        for (; at < end; ++at) {
            const Vec weight = Vec::load_some(weights + at * weight_pitch, n, Vec::zero());
            const char* p = data + places[at];
            for (int i = 0; i < Places; ++i)
                acc[i] =
                    fma(Vec::load_some(reinterpret_cast<const float*>(p + i * step), n, Vec::zero()),
                        weight, acc[i]);
        }
        for (int i = 0; i < Places; ++i) psum[i] = add(psum[i], acc[i]);
    }
    for (int i = 0; i < Places; ++i) psum[i].store_some(sums + i * pitch, n);
}

inline void product_channels(const char* data, ptrdiff_t step, int64_t count, const int64_t* places,
                             int64_t window, int64_t tile, const float* weights, int64_t weight_pitch,
                             int channels, float* sums, int64_t pitch) {
    constexpr int together = 8;
    for (int j = 0; j < channels; j += Vec::lanes) {
        const int n = channels - j < Vec::lanes ? channels - j : Vec::lanes;
        int64_t i = 0;
        for (; i + together <= count; i += together)
            sum_channels<together>(data + i * step + j * 4, step, places, window, tile, weights + j,
                                   weight_pitch, n, sums + i * pitch + j, pitch);
        for (; i < count; ++i)
            sum_channels<1>(data + i * step + j * 4, step, places, window, tile, weights + j,
                            weight_pitch, n, sums + i * pitch + j, pitch);
    }
}

// Of the places of two vectors that follow each other, every `Step`-th one from `First` on.
template <int Step, int First, int... I>
inline Vec taken_lanes(Vec low, Vec high, Lanes<I...>) {
    if constexpr (Step == 2 && First < 2) return every_second<First>(low, high);
    return vec_of(__builtin_shufflevector(floats_of(low), floats_of(high),
                                          ((Step * I + First) % (2 * Vec::lanes))...));
}

// The lines of some channels, each into its plane. Vectors are stored whole: what lies behind a line's
// end is padding, or of a line that comes later.
inline void fill_planes(const char* data, ptrdiff_t data_pitch, int channels, const PlaneLine* lines,
                        const PlaneLine* lines_end, float padding, float* planes, int64_t plane_pitch) {
    constexpr int lanes = Vec::lanes;
    const Vec rest = Vec::splat(padding);
    for (int c = 0; c < channels; ++c, data += data_pitch, planes += plane_pitch)
        for (const PlaneLine* l = lines; l != lines_end; ++l) {
            const auto* from = reinterpret_cast<const float*>(data + l->from);
            float* to = planes + l->place;
            int64_t left = l->count;
            if (l->pitch == 1 && l->step == 1) {
                for (; left > lanes; left -= lanes, from += lanes, to += lanes)
                    Vec::load(from).store(to);
                Vec::load_some(from, static_cast<int>(left), rest).store(to);
            } else if (l->pitch == 1 && l->step == 2) {
                for (; left > 0; left -= lanes, from += 2 * lanes, to += lanes)
                    load_every_second(from, left, rest).store(to);
            } else {
                for (int64_t i = 0; i < left; ++i) to[i * l->pitch] = from[i * l->step];
            }
        }
}

// The sums of `Together` vectors of neighbouring places. A window of a known size is within one tile.
template <int Together, int Window>
[[gnu::always_inline]] inline void sum_places(const float* data, const PlaneSums& p,
                                              const float* weights, const Vec* known, float* sums) {
    Vec psum[Together], acc[Together];
    for (Vec& v : psum) v = Vec::zero();
    const int64_t window = Window > 0 ? Window : p.window, tile = Window > 0 ? Window : p.tile;
    for (int64_t at = 0; at < window;) {
        const int64_t end = at + tile < window ? at + tile : window;
        for (Vec& v : acc) v = Vec::zero();
#pragma GCC unroll 9
        for (; at < end; ++at) {
            const Vec weight = Window > 0 ? known[at] : Vec::splat(weights[at]);
            const float* from = data + p.places[at];
            for (int j = 0; j < Together; ++j)
                acc[j] = fma(Vec::load(from + j * Vec::lanes), weight, acc[j]);
        }
        for (int j = 0; j < Together; ++j) psum[j] = add(psum[j], acc[j]);
    }
    for (int j = 0; j < Together; ++j) psum[j].store(sums + j * Vec::lanes);
}

template <int Window>
inline void sum_plane(const float* data, const PlaneSums& p, const float* weights, float* sums) {
    Vec known[Window + 1];
    for (int i = 0; i < Window; ++i) known[i] = Vec::splat(weights[i]);
    constexpr int lanes = Vec::lanes;
    int64_t i = 0;
    for (; p.count - i > 6 * lanes; i += 8 * lanes)
        sum_places<8, Window>(data + i, p, weights, known, sums + i);
    for (; p.count - i > 2 * lanes; i += 4 * lanes)
        sum_places<4, Window>(data + i, p, weights, known, sums + i);
    for (; i < p.count; i += 2 * lanes) sum_places<2, Window>(data + i, p, weights, known, sums + i);
}

inline void sum_planes(const PlaneSums& p) {
    constexpr int common = 9;  // 3 x 3
    const bool is_common = p.window == common && p.tile >= common;
    for (int64_t c = 0; c < p.channels; ++c) {
        const float* data = p.planes + c / p.multiplier * p.plane_pitch;
        const float* weights = p.weights + c * p.window;
        if (is_common) sum_plane<common>(data, p, weights, p.sums + c * p.pitch);
        else sum_plane<0>(data, p, weights, p.sums + c * p.pitch);
    }
}

// The outputs' lines among the sums of each channel, one after the other. Vectors are stored whole.
inline void join_lines(const float* sums, int64_t pitch, int64_t channels, const int64_t* places,
                       int64_t count, int64_t length, float* out) {
    constexpr int lanes = Vec::lanes;
    for (int64_t c = 0; c < channels; ++c, sums += pitch)
        for (int64_t i = 0; i < count; ++i, out += length)
            for (int64_t j = 0; j < length; j += lanes) Vec::load(sums + places[i] + j).store(out + j);
}

// Lines of outputs whose windows are squares of neighbours, from the input in place: each line of it is
// read once for all the sums of some lines that take it, in the order of the window (M5). Vectors of
// outputs whose windows lie within the input are read whole, the others by ranges.
// Loads that cross cache lines bound this: where all outputs of a line take no more than a vector, one
// load of each line serves.
template <int Window, int Stride, bool IsShort>
struct FloatLines {
    static constexpr int window = Window, stride = Stride, taps = Window;
    using Sum = Vec;
    using Weight = float;
    // What of a line lies in the input, for the outputs of a vector.
    struct Part {
        Vec::Range ranges[Window][Stride];
    };
    // From where the window's k-th elements are read: where strides are 2 the last one's are every
    // second from the element before, so that none behind them is.
    static constexpr int origin(int k) { return Stride == 2 && k == Window - 1 ? k - 1 : k; }
    static Part part(int64_t column, int64_t columns) {
        Part p;
        for (int k = 0; k < Window; ++k)
            for (int i = 0; i < Stride; ++i) {
                const int64_t first = -(column + origin(k) + i * Vec::lanes), end = columns + first;
                const auto lane = [](int64_t x) {
                    return static_cast<int>(x < 0 ? 0 : x > Vec::lanes ? Vec::lanes : x);
                };
                p.ranges[k][i] = Vec::range(lane(first), lane(end));
            }
        return p;
    }
    static constexpr bool may_be_whole = !IsShort;
    static bool is_whole(int64_t column, int64_t columns) {
        constexpr int reach = origin(Window - 1) + Stride * Vec::lanes;
        return column >= 0 && column + reach <= columns;
    }
    template <bool Whole>
    static void load(const DepthwiseLines&, const char* line, int64_t column, const Part& p, Vec* x) {
        const float* from = reinterpret_cast<const float*>(line) + column;
        constexpr auto lanes = MakeLanes<Vec::lanes>();
        if constexpr (IsShort) {
            const Vec all = Vec::load_range(from, p.ranges[0][0]);
            [&]<int... K>(Lanes<K...>) {
                ((x[K] = taken_lanes<Stride, K>(all, all, lanes)), ...);
            }(MakeLanes<Window>());
        } else {
            const auto read = [&](int k, int i) {
                const float* const at = from + origin(k) + i * Vec::lanes;
                return Whole ? Vec::load(at) : Vec::load_range(at, p.ranges[k][i]);
            };
            Vec next = Vec::zero(), both = next;
            for (int k = 0; k < Window; ++k) {
                if (k % Stride == 0) both = read(k, 0);
                x[k] = both;
                if constexpr (Stride == 2) {
                    if (k % 2 == 0) next = read(k, 1);
                    x[k] = k % 2 == 0 && origin(k) == k ? every_second<0>(both, next)
                                                        : every_second<1>(both, next);
                }
            }
        }
    }
    static Vec outside(const DepthwiseLines&) { return Vec::zero(); }
    static Vec start(const DepthwiseLines&, int64_t) { return Vec::zero(); }
    static Vec step(Vec x, float weight, Vec sum) { return fma(x, Vec::splat(weight), sum); }
    static void store(Vec sum, float* to) { add(Vec::zero(), sum).store(to); }
};

#if defined(__AVX512BW__)
template <int Window, int Stride, bool Turned>
struct ByteLines {
    static constexpr int window = Window, stride = Stride, taps = (Window + 3) / 4;
    using Sum = IntVector;
    using Weight = int32_t;  // of four bytes
    struct Part {
        ByteRange ranges[taps];
    };
    static Part part(int64_t column, int64_t columns) {
        Part p;
        for (int k = 0; k < taps; ++k) {
            const int64_t first = -(column + 4 * k), end = columns + first;
            const auto byte = [](int64_t x) { return static_cast<int>(x < 0 ? 0 : x > 64 ? 64 : x); };
            p.ranges[k] = byte_range(byte(first), byte(end));
        }
        return p;
    }
    static constexpr bool may_be_whole = false;  // ranges of bytes cost nothing
    static bool is_whole(int64_t, int64_t) { return false; }
    template <bool Whole>
    static void load(const DepthwiseLines& d, const char* line, int64_t column, const Part& p,
                     IntVector* x) {
        const IntVector rest = IntVector{} + d.padding, flip = IntVector{} + d.flip;
        for (int k = 0; k < taps; ++k)
            x[k] = load_byte_words<Stride>(line + column + 4 * k, p.ranges[k], rest) ^ flip;
    }
    static IntVector outside(const DepthwiseLines& d) { return IntVector{} + (d.padding ^ d.flip); }
    static IntVector start(const DepthwiseLines& d, int64_t channel) {
        return IntVector{} + d.starts[channel];
    }
    static IntVector step(IntVector x, int32_t weight, IntVector sum) {
        const IntVector w = IntVector{} + weight;
        return Turned ? add_byte_products(w, x, sum) : add_byte_products(x, w, sum);
    }
    static void store(IntVector sum, float* to) { __builtin_memcpy(to, &sum, sizeof sum); }
};
#endif

// A vector of outputs of each line.
template <class L>
struct LinePlace {
    int64_t first, column;  // of the outputs, and of the first one's window
    bool is_whole;
    typename L::Part part;
};

template <class L, int Lines, bool Whole>
[[gnu::always_inline]] inline void sum_lines(const DepthwiseLines& d, const char* data,
                                             const LinePlace<L>& place,
                                             const typename L::Weight* weights, typename L::Sum start,
                                             int64_t line, float* sums) {
    typename L::Sum acc[Lines], x[L::taps];
    for (auto& sum : acc) sum = start;
    const int64_t first = d.first_row + line * L::stride;
#pragma GCC unroll 16
    for (int i = 0; i < (Lines - 1) * L::stride + L::window; ++i) {
        const bool inside = first + i >= 0 && first + i < d.rows;
        if (inside) L::template load<Whole>(d, data + (first + i) * d.row, place.column, place.part, x);
        else
            for (auto& v : x) v = L::outside(d);
#pragma GCC unroll 4
        for (int j = 0; j < Lines; ++j) {
            const int at = i - j * L::stride;  // the window's line
            if (at < 0 || at >= L::window) continue;
#pragma GCC unroll 8
            for (int k = 0; k < L::taps; ++k) acc[j] = L::step(x[k], weights[at * L::taps + k], acc[j]);
        }
    }
    for (int j = 0; j < Lines; ++j) L::store(acc[j], sums + (line + j) * d.length + place.first);
}

template <class L>
void sum_depthwise(const DepthwiseLines& d) {
    constexpr int lanes = Vec::lanes, most = 32;
    // Along the lines, as the input lies, so that the processor sees what comes.
    for (int64_t from = 0; from < d.length; from += most * lanes) {
        LinePlace<L> places[most];
        int count = 0;
        for (int64_t at = from; at < d.length && count < most; at += lanes) {
            // The last vector begins before its place, so that it ends with the line, or else runs into
            // the next one, which comes later.
            const int64_t first = at + lanes <= d.length || d.length < lanes ? at : d.length - lanes;
            const int64_t column = d.first_column + first * L::stride;
            places[count++] = {first, column, L::is_whole(column, d.columns),
                               L::part(column, d.columns)};
        }
        for (int64_t c = 0; c < d.channels; ++c) {
            const char* data = d.data + c / d.multiplier * d.channel;
            const auto* weights =
                static_cast<const typename L::Weight*>(d.weights) + c * L::window * L::taps;
            const auto start = L::start(d, c);
            float* const sums = d.sums + c * d.lines * d.length;
            int64_t line = 0;
            const auto sum = [&]<int Lines>() {
                for (; line + Lines <= d.lines; line += Lines)
                    for (int i = 0; i < count; ++i) {
                        const LinePlace<L>& p = places[i];
                        if constexpr (L::may_be_whole)
                            if (p.is_whole) {
                                sum_lines<L, Lines, true>(d, data, p, weights, start, line, sums);
                                continue;
                            }
                        sum_lines<L, Lines, false>(d, data, p, weights, start, line, sums);
                    }
            };
            sum.template operator()<4>();
            sum.template operator()<2>();
            sum.template operator()<1>();
        }
    }
}

template <int Window, int Stride>
void sum_float_lines(const DepthwiseLines& d) {
    const bool is_short = (d.length - 1) * Stride + Window <= Vec::lanes;
    if (is_short) sum_depthwise<FloatLines<Window, Stride, true>>(d);
    else sum_depthwise<FloatLines<Window, Stride, false>>(d);
}
