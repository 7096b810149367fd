// Elements in memory to a tile, in the form of their domain, and back.
// Included inside each instruction set's namespace.

template <int Bytes>
struct Storage;
template <>
struct Storage<1> {
    using type = uint8_t;
};
template <>
struct Storage<2> {
    using type = uint16_t;
};
template <>
struct Storage<4> {
    using type = uint32_t;
};
template <>
struct Storage<8> {
    using type = uint64_t;
};

template <class S>
inline S read(const char* p) {
    S x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}

// One storage word as the tile's element; integers are widened with their sign.
template <DType T>
inline auto widen(typename Storage<storage_bytes(T)>::type x) {
    if constexpr (is_device_float(T)) {
        if constexpr (T == DType::float32 || T == DType::tfloat32) return x;
        else return decode<static_cast<int>(T)>(x);
    } else if constexpr (T == DType::float64) {
        return bits_as<double>(x);
    } else if constexpr (T == DType::int8) {
        return static_cast<int64_t>(static_cast<int8_t>(x));
    } else if constexpr (T == DType::int16) {
        return static_cast<int64_t>(static_cast<int16_t>(x));
    } else if constexpr (T == DType::int32) {
        return static_cast<int64_t>(static_cast<int32_t>(x));
    } else if constexpr (T == DType::int64) {
        return static_cast<int64_t>(x);
    } else if constexpr (T == DType::boolean) {
        return static_cast<uint64_t>(x != 0);
    } else {
        return static_cast<uint64_t>(x);
    }
}

template <DType T>
using Element = decltype(widen<T>({}));

template <Domain D>
struct ElementOf;
template <>
struct ElementOf<Domain::float32> {
    using type = float;
};
template <>
struct ElementOf<Domain::float64> {
    using type = double;
};
template <>
struct ElementOf<Domain::signed_integer> {
    using type = int64_t;
};
template <>
struct ElementOf<Domain::unsigned_integer> {
    using type = uint64_t;
};
template <Domain D>
using DomainElement = typename ElementOf<D>::type;

// Elements that are computed in place, one after the other: the compiler may take them together.
#define FOR_ELEMENTS _Pragma("GCC ivdep") for (int i = 0; i < n; ++i)

template <DType T>
void load(const char* source, ptrdiff_t stride, int n, void* out) {
    using S = typename Storage<storage_bytes(T)>::type;
    constexpr ptrdiff_t size = sizeof(S);
    auto* target = static_cast<Element<T>*>(out);
    if (stride == size && T == DType::float16 && has_float16_conversion) {
        if constexpr (T == DType::float16) {
            for (int i = 0; i < n;) {
                i += decode_float16(source + i * size, n - i, target + i);
                const int end = i + native_block < n ? i + native_block : n;
                for (; i < end; ++i) target[i] = widen<T>(read<S>(source + i * size));
            }
        }
    } else if (stride == size) {
        FOR_ELEMENTS target[i] = widen<T>(read<S>(source + i * size));
    } else if (stride == 0) {
        const auto x = widen<T>(read<S>(source));
        FOR_ELEMENTS target[i] = x;
    } else {
        FOR_ELEMENTS target[i] = widen<T>(read<S>(source + i * stride));
    }
}

template <DType T, Payload P>
inline void store_range(const Element<T>* source, int begin, int end, char* target) {
    using S = typename Storage<storage_bytes(T)>::type;
    _Pragma("GCC ivdep") for (int i = begin; i < end; ++i) {
        S x;
        if constexpr (is_device_float(T) && sizeof(S) < sizeof(float))
            x = static_cast<S>(encode<static_cast<int>(T), P>(source[i]));
        else if constexpr (is_device_float(T)) x = P == Payload::drop ? quiet(source[i]) : source[i];
        else if constexpr (T == DType::float64) x = bits_as<S>(source[i]);
        else x = static_cast<S>(source[i]);
        __builtin_memcpy(target + i * static_cast<ptrdiff_t>(sizeof(S)), &x, sizeof x);
    }
}

template <DType T, Payload P>
void store(const void* in, int n, char* target) {
    const auto* source = static_cast<const Element<T>*>(in);
    constexpr bool native = (T == DType::bfloat16 && has_bfloat16_conversion) ||
                            (T == DType::float16 && has_float16_conversion);
    if constexpr (native) {
        for (int i = 0; i < n;) {
            if constexpr (T == DType::bfloat16) i += encode_bfloat16(source + i, n - i, target + 2 * i);
            else i += encode_float16(source + i, n - i, target + 2 * i);
            const int end = i + native_block < n ? i + native_block : n;
            store_range<T, P>(source, i, end, target);
            i = end;
        }
    } else {
        store_range<T, P>(source, 0, n, target);
    }
}
