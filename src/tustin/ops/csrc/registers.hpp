// One register of floats or doubles, with the compilers' vector extensions (GCC and Clang alike).
//
// How wide it is, TUSTIN_REGISTER_BYTES, is a constant of the build and not of the instruction set. Where the instruction
// set has none so wide, the compiler takes several.
//
// The compiler may not fuse a product with a sum by itself (-ffp-contract=off): a fused operation is written as one. So
// every instruction set that has them, and every compiler, gives the same bits.
//
// This file is compiled once per CPU level, each in a namespace of its own; nothing here may come from a std:: template, or
// the linker could hand one level another level's code.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Everything on vectors must be inlined: through memory it would be many times slower.
#define TUSTIN_INLINED __attribute__((always_inline))
#define TUSTIN_INLINE inline TUSTIN_INLINED
// But not the functions around the innermost loops: with less about them, more of what they need stays in registers.
#define TUSTIN_APART __attribute__((noinline))

#if defined(__FMA__) || defined(__aarch64__)
#define TUSTIN_HAS_FMA 1
#else
#define TUSTIN_HAS_FMA 0
#endif

namespace TUSTIN_LEVEL {

constexpr int kRegisterBytes = TUSTIN_REGISTER_BYTES;
#if defined(__AVX512F__)
constexpr int kWidestBytes = 64;  // that the instruction set has
#elif defined(__AVX2__)
constexpr int kWidestBytes = 32;
#else
constexpr int kWidestBytes = 16;
#endif

template <class Real, int bytes>
struct Types;
#define TUSTIN_TYPES(bytes)                                            \
  template <>                                                          \
  struct Types<float, bytes> {                                         \
    typedef float Register __attribute__((vector_size(bytes)));        \
    typedef int32_t Integers __attribute__((vector_size(bytes)));      \
  };                                                                   \
  template <>                                                          \
  struct Types<double, bytes> {                                        \
    typedef double Register __attribute__((vector_size(bytes)));       \
    typedef int64_t Integers __attribute__((vector_size(bytes)));      \
  };
TUSTIN_TYPES(16)
TUSTIN_TYPES(32)
TUSTIN_TYPES(64)
#undef TUSTIN_TYPES
template <class Real, int bytes = kRegisterBytes>
using Register = typename Types<Real, bytes>::Register;
template <class Real, int bytes = kRegisterBytes>
using Integers = typename Types<Real, bytes>::Integers;
template <class Real>
constexpr int kRegisterLanes = kRegisterBytes / sizeof(Real);

template <class R, class Real>
TUSTIN_INLINE R load_register(const Real* p) {
  R v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class R, class Real>
TUSTIN_INLINE void store_register(Real* p, R v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// The halves of a register, and a register of two halves.
#define TUSTIN_HALVES(TYPE, REAL, BYTES, LOW, HIGH, BOTH)                                                             \
  TUSTIN_INLINE TYPE<REAL, BYTES / 2> low_half(TYPE<REAL, BYTES> a) { return __builtin_shufflevector LOW; }           \
  TUSTIN_INLINE TYPE<REAL, BYTES / 2> high_half(TYPE<REAL, BYTES> a) { return __builtin_shufflevector HIGH; }         \
  TUSTIN_INLINE TYPE<REAL, BYTES> join(TYPE<REAL, BYTES / 2> a, TYPE<REAL, BYTES / 2> b) {                            \
    return __builtin_shufflevector BOTH;                                                                              \
  }
#define TUSTIN_SIXTEEN 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define TUSTIN_HALVES_OF_BOTH(TYPE)                                                                             \
  TUSTIN_HALVES(TYPE, float, 64, (a, a, 0, 1, 2, 3, 4, 5, 6, 7), (a, a, 8, 9, 10, 11, 12, 13, 14, 15),          \
                (a, b, TUSTIN_SIXTEEN))                                                                         \
  TUSTIN_HALVES(TYPE, float, 32, (a, a, 0, 1, 2, 3), (a, a, 4, 5, 6, 7), (a, b, 0, 1, 2, 3, 4, 5, 6, 7))        \
  TUSTIN_HALVES(TYPE, double, 64, (a, a, 0, 1, 2, 3), (a, a, 4, 5, 6, 7), (a, b, 0, 1, 2, 3, 4, 5, 6, 7))       \
  TUSTIN_HALVES(TYPE, double, 32, (a, a, 0, 1), (a, a, 2, 3), (a, b, 0, 1, 2, 3))
TUSTIN_HALVES_OF_BOTH(Register)
TUSTIN_HALVES_OF_BOTH(Integers)
#undef TUSTIN_HALVES_OF_BOTH
#undef TUSTIN_SIXTEEN
#undef TUSTIN_HALVES

// a·b + c, a·b − c and c − a·b, rounded once; where the instruction set cannot do that, the product is rounded by itself.
#if defined(__FMA__)
#define TUSTIN_FUSED(REAL, BYTES, PREFIX, SUFFIX)                                                                       \
  TUSTIN_INLINE Register<REAL, BYTES> fused(Register<REAL, BYTES> a, Register<REAL, BYTES> b, Register<REAL, BYTES> c) { \
    return PREFIX##_fmadd_##SUFFIX(a, b, c);                                                                            \
  }                                                                                                                     \
  TUSTIN_INLINE Register<REAL, BYTES> fused_minus(Register<REAL, BYTES> a, Register<REAL, BYTES> b,                      \
                                                  Register<REAL, BYTES> c) {                                            \
    return PREFIX##_fmsub_##SUFFIX(a, b, c);                                                                            \
  }                                                                                                                     \
  TUSTIN_INLINE Register<REAL, BYTES> minus_fused(Register<REAL, BYTES> a, Register<REAL, BYTES> b,                      \
                                                  Register<REAL, BYTES> c) {                                            \
    return PREFIX##_fnmadd_##SUFFIX(a, b, c);                                                                           \
  }
TUSTIN_FUSED(float, 16, _mm, ps)
TUSTIN_FUSED(double, 16, _mm, pd)
TUSTIN_FUSED(float, 32, _mm256, ps)
TUSTIN_FUSED(double, 32, _mm256, pd)
#if defined(__AVX512F__)
TUSTIN_FUSED(float, 64, _mm512, ps)
TUSTIN_FUSED(double, 64, _mm512, pd)
#endif
#undef TUSTIN_FUSED
#elif defined(__aarch64__)
#define TUSTIN_FUSED(REAL, SUFFIX)                                                                              \
  TUSTIN_INLINE Register<REAL, 16> fused(Register<REAL, 16> a, Register<REAL, 16> b, Register<REAL, 16> c) {     \
    return (Register<REAL, 16>)vfmaq_##SUFFIX(c, a, b);                                                         \
  }                                                                                                             \
  TUSTIN_INLINE Register<REAL, 16> fused_minus(Register<REAL, 16> a, Register<REAL, 16> b, Register<REAL, 16> c) { \
    return (Register<REAL, 16>)vfmaq_##SUFFIX(-c, a, b);                                                        \
  }                                                                                                             \
  TUSTIN_INLINE Register<REAL, 16> minus_fused(Register<REAL, 16> a, Register<REAL, 16> b, Register<REAL, 16> c) { \
    return (Register<REAL, 16>)vfmsq_##SUFFIX(c, a, b);                                                         \
  }
TUSTIN_FUSED(float, f32)
TUSTIN_FUSED(double, f64)
#undef TUSTIN_FUSED
#endif
// Registers that are wider than the instruction set's, or that have no fused operations.
template <class R>
TUSTIN_INLINE R fused(R a, R b, R c) {
  if constexpr (TUSTIN_HAS_FMA)
    return join(fused(low_half(a), low_half(b), low_half(c)), fused(high_half(a), high_half(b), high_half(c)));
  else
    return a * b + c;
}
template <class R>
TUSTIN_INLINE R fused_minus(R a, R b, R c) {
  if constexpr (TUSTIN_HAS_FMA)
    return join(fused_minus(low_half(a), low_half(b), low_half(c)),
                fused_minus(high_half(a), high_half(b), high_half(c)));
  else
    return a * b - c;
}
template <class R>
TUSTIN_INLINE R minus_fused(R a, R b, R c) {
  if constexpr (TUSTIN_HAS_FMA)
    return join(minus_fused(low_half(a), low_half(b), low_half(c)),
                minus_fused(high_half(a), high_half(b), high_half(c)));
  else
    return c - a * b;
}

// The larger (smaller) of two; of two zeros, and where one is NaN, the right one. The compilers do not find the
// instruction by themselves.
template <class R>
TUSTIN_INLINE R larger(R a, R b) {
  return a > b ? a : b;
}
template <class R>
TUSTIN_INLINE R smaller(R a, R b) {
  return a < b ? a : b;
}
#define TUSTIN_EXTREMES(REAL, BYTES, PREFIX, SUFFIX)                                                  \
  TUSTIN_INLINE Register<REAL, BYTES> larger(Register<REAL, BYTES> a, Register<REAL, BYTES> b) {      \
    return PREFIX##_max_##SUFFIX(a, b);                                                               \
  }                                                                                                   \
  TUSTIN_INLINE Register<REAL, BYTES> smaller(Register<REAL, BYTES> a, Register<REAL, BYTES> b) {     \
    return PREFIX##_min_##SUFFIX(a, b);                                                               \
  }
#if defined(__SSE2__)
TUSTIN_EXTREMES(float, 16, _mm, ps)
TUSTIN_EXTREMES(double, 16, _mm, pd)
#endif
#if defined(__AVX__)
TUSTIN_EXTREMES(float, 32, _mm256, ps)
TUSTIN_EXTREMES(double, 32, _mm256, pd)
#endif
#if defined(__AVX512F__)
TUSTIN_EXTREMES(float, 64, _mm512, ps)
TUSTIN_EXTREMES(double, 64, _mm512, pd)
#endif
#undef TUSTIN_EXTREMES

// The entries of a table of eight that the lowest three bits of each index name.
struct Eight {
  int32_t entry[8];
};
template <class I>
TUSTIN_INLINE I look_up(const Eight& table, I index) {
  if constexpr (sizeof(I) > kWidestBytes) {
    return join(look_up(table, low_half(index)), look_up(table, high_half(index)));
#if defined(__AVX512F__)
  } else if constexpr (sizeof(I) == 64) {
    const Integers<float, 32> once = load_register<Integers<float, 32>>(table.entry);
    return (I)_mm512_permutexvar_epi32((__m512i)index, (__m512i)join(once, once));
#endif
#if defined(__AVX2__)
  } else if constexpr (sizeof(I) == 32) {
    return (I)_mm256_permutevar8x32_epi32((__m256i)load_register<I>(table.entry), (__m256i)index);
  } else {
    return low_half(look_up(table, join(index, index)));
#elif defined(__aarch64__)
  } else {
    const uint8x16x2_t bytes = {{vld1q_u8((const uint8_t*)table.entry), vld1q_u8((const uint8_t*)table.entry + 16)}};
    return (I)vqtbl2q_u8(bytes, (uint8x16_t)((index & 7) * 0x04040404 + 0x03020100));
#else
  } else {
    I found;
    for (size_t i = 0; i < sizeof(I) / 4; ++i) found[i] = table.entry[index[i] & 7];
    return found;
#endif
  }
}

// Interleaves the first (second) halves of two registers: `inner` inside each sixteen bytes of them, `outer` sixteen bytes
// at a time. Any transposition is built of these steps, and none moves single numbers across sixteen bytes, which is slow.
#define TUSTIN_INTERLEAVE(NAME, REAL, BYTES, FIRST, SECOND)                                                    \
  TUSTIN_INLINE Register<REAL, BYTES> NAME##_first(Register<REAL, BYTES> a, Register<REAL, BYTES> b) {         \
    return __builtin_shufflevector FIRST;                                                                      \
  }                                                                                                            \
  TUSTIN_INLINE Register<REAL, BYTES> NAME##_second(Register<REAL, BYTES> a, Register<REAL, BYTES> b) {        \
    return __builtin_shufflevector SECOND;                                                                     \
  }
TUSTIN_INTERLEAVE(inner, float, 64, (a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                  (a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31))
TUSTIN_INTERLEAVE(inner, double, 64, (a, b, 0, 8, 2, 10, 4, 12, 6, 14), (a, b, 1, 9, 3, 11, 5, 13, 7, 15))
TUSTIN_INTERLEAVE(outer, float, 64, (a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                  (a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31))
TUSTIN_INTERLEAVE(outer, double, 64, (a, b, 0, 1, 8, 9, 2, 3, 10, 11), (a, b, 4, 5, 12, 13, 6, 7, 14, 15))
TUSTIN_INTERLEAVE(inner, float, 32, (a, b, 0, 8, 1, 9, 4, 12, 5, 13), (a, b, 2, 10, 3, 11, 6, 14, 7, 15))
TUSTIN_INTERLEAVE(inner, double, 32, (a, b, 0, 4, 2, 6), (a, b, 1, 5, 3, 7))
TUSTIN_INTERLEAVE(outer, float, 32, (a, b, 0, 1, 2, 3, 8, 9, 10, 11), (a, b, 4, 5, 6, 7, 12, 13, 14, 15))
TUSTIN_INTERLEAVE(outer, double, 32, (a, b, 0, 1, 4, 5), (a, b, 2, 3, 6, 7))
TUSTIN_INTERLEAVE(inner, float, 16, (a, b, 0, 4, 1, 5), (a, b, 2, 6, 3, 7))
TUSTIN_INTERLEAVE(inner, double, 16, (a, b, 0, 2), (a, b, 1, 3))
TUSTIN_INTERLEAVE(outer, float, 16, (a, b, 0, 1, 2, 3), (a, b, 4, 5, 6, 7))  // never called: there is one sixteen only
TUSTIN_INTERLEAVE(outer, double, 16, (a, b, 0, 1), (a, b, 2, 3))
#undef TUSTIN_INTERLEAVE

template <class Real>
constexpr int kInner = 16 / sizeof(Real);  // numbers in sixteen bytes

// Transposes a square of registers in place: each pass interleaves the first half of the rows with the second.
template <class Real>
TUSTIN_INLINE void transpose(Register<Real>* rows) {
  constexpr int inner = kInner<Real>, outer = kRegisterBytes / 16;
  Register<Real> next[kRegisterLanes<Real>];
  for (int first = 0; first < outer * inner; first += inner)
    for (int pass = 1; pass < inner; pass *= 2) {
      for (int i = 0; i < inner / 2; ++i) {
        next[2 * i] = inner_first(rows[first + i], rows[first + i + inner / 2]);
        next[2 * i + 1] = inner_second(rows[first + i], rows[first + i + inner / 2]);
      }
      for (int i = 0; i < inner; ++i) rows[first + i] = next[i];
    }
  for (int first = 0; first < inner; ++first)
    for (int pass = 1; pass < outer; pass *= 2) {
      for (int i = 0; i < outer / 2; ++i) {
        next[2 * i] = outer_first(rows[first + i * inner], rows[first + (i + outer / 2) * inner]);
        next[2 * i + 1] = outer_second(rows[first + i * inner], rows[first + (i + outer / 2) * inner]);
      }
      for (int i = 0; i < outer; ++i) rows[first + i * inner] = next[i];
    }
}

}  // namespace TUSTIN_LEVEL
