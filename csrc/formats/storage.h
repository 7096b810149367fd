// Elements in memory to a tile, in the form of their domain, and back.
// Included inside each instruction set's namespace.

template <Domain D>
using DomainElement =
    std::tuple_element_t<static_cast<size_t>(D), std::tuple<float, double, int8_t, uint8_t, int32_t,
                                                            uint32_t, int64_t, uint64_t>>;
template <DType T>
using Word = std::tuple_element_t<std::countr_zero(static_cast<unsigned>(storage_bytes(T))),
                                  std::tuple<uint8_t, uint16_t, uint32_t, uint64_t>>;
// In a tile float32 is its bits.
template <DType T>
using Element = std::conditional_t<is_device_float(T), uint32_t, DomainElement<domain_of(T)>>;

template <DType T>
inline Element<T> widen(Word<T> x) {
    if constexpr (T == DType::float32 || T == DType::tfloat32) return x;
    else if constexpr (is_device_float(T)) return decode<static_cast<int>(T)>(x);
    else if constexpr (T == DType::float64) return bits_as<double>(x);
    else if constexpr (is_signed_integer(T)) return static_cast<std::make_signed_t<Word<T>>>(x);
    else if constexpr (T == DType::boolean) return x > 1 ? 1 : x;
    else return x;
}

// Elements that are computed in place, one after the other: the compiler may take them together.
#define FOR_ELEMENTS _Pragma("GCC ivdep") for (int i = 0; i < n; ++i)

template <DType T>
void load(const char* source, ptrdiff_t stride, int n, void* out) {
    using S = Word<T>;
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
    using S = Word<T>;
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
