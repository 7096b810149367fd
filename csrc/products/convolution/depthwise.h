// The inner loops of depthwise convolution (M5): sums of neighbouring channels, each with weights of
// its own, and of neighbouring places of one channel, all with the same. Included inside each
// instruction set's namespace.

// A vector of channels, or as many as there are.
inline Vec load_some(const float* p, int n) {
    if (n >= Vec::lanes) return Vec::load(p);
    float x[Vec::lanes] = {};
    __builtin_memcpy(x, p, static_cast<size_t>(n) * sizeof(float));
    return Vec::load(x);
}

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
            const Vec weight = load_some(weights + at * weight_pitch, n);
            const char* p = data + places[at];
            for (int i = 0; i < Places; ++i)
                acc[i] =
                    fma(load_some(reinterpret_cast<const float*>(p + i * step), n), weight, acc[i]);
        }
        for (int i = 0; i < Places; ++i) psum[i] = add(psum[i], acc[i]);
    }
    for (int i = 0; i < Places; ++i) {
        if (n >= Vec::lanes) {
            psum[i].store(sums + i * pitch);
        } else {
            float x[Vec::lanes];
            psum[i].store(x);
            __builtin_memcpy(sums + i * pitch, x, static_cast<size_t>(n) * sizeof(float));
        }
    }
}

inline void product_channels(const char* data, ptrdiff_t step, int64_t count, const int64_t* places,
                             int64_t window, int64_t tile, const float* weights, int64_t weight_pitch,
                             int channels, float* sums, int64_t pitch) {
    constexpr int together = 8;
    for (int j = 0; j < channels; j += Vec::lanes) {
        const int n = channels - j;
        int64_t i = 0;
        for (; i + together <= count; i += together)
            sum_channels<together>(data + i * step + j * 4, step, places, window, tile, weights + j,
                                   weight_pitch, n, sums + i * pitch + j, pitch);
        for (; i < count; ++i)
            sum_channels<1>(data + i * step + j * 4, step, places, window, tile, weights + j,
                            weight_pitch, n, sums + i * pitch + j, pitch);
    }
}

template <int Together>
inline void sum_places(const float* data, const int64_t* places, int64_t window, int64_t tile,
                       const float* weights, float* sums) {
    Vec psum[Together], acc[Together];
    for (Vec& v : psum) v = Vec::zero();
    for (int64_t at = 0; at < window;) {
        const int64_t end = at + tile < window ? at + tile : window;
        for (Vec& v : acc) v = Vec::zero();
        for (; at < end; ++at) {
            const Vec weight = Vec::splat(weights[at]);
            const float* p = data + places[at];
            for (int j = 0; j < Together; ++j)
                acc[j] = fma(Vec::load(p + j * Vec::lanes), weight, acc[j]);
        }
        for (int j = 0; j < Together; ++j) psum[j] = add(psum[j], acc[j]);
    }
    for (int j = 0; j < Together; ++j) psum[j].store(sums + j * Vec::lanes);
}

inline void product_plane(const float* data, const int64_t* places, int64_t window, int64_t tile,
                          const float* weights, int64_t count, float* sums) {
    int64_t i = 0;
    for (; i + 4 * Vec::lanes < count; i += 8 * Vec::lanes)
        sum_places<8>(data + i, places, window, tile, weights, sums + i);
    for (; i < count; i += 2 * Vec::lanes)
        sum_places<2>(data + i, places, window, tile, weights, sums + i);
}
