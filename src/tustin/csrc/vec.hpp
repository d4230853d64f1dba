// Short vectors for every instruction set from one source, with the compilers' vector extensions (GCC and Clang alike).
//
// This file is compiled once per CPU level, each in a namespace of its own; nothing here may come from a std:: template, or
// the linker could hand one level another level's code.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

// Everything on vectors must be inlined: through memory it would be many times slower.
#define TUSTIN_INLINE inline __attribute__((always_inline))
// But not the functions around the innermost loops: with less about them, more of what they need stays in registers.
#define TUSTIN_APART __attribute__((noinline))

namespace TUSTIN_LEVEL {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

// One register.
template <class Real>
struct Types;
template <>
struct Types<float> {
  typedef float Register __attribute__((vector_size(kRegisterBytes)));
  typedef int32_t Integers __attribute__((vector_size(kRegisterBytes)));
};
template <>
struct Types<double> {
  typedef double Register __attribute__((vector_size(kRegisterBytes)));
  typedef int64_t Integers __attribute__((vector_size(kRegisterBytes)));
};
template <class Real>
using Register = typename Types<Real>::Register;
template <class Real>
using Integers = typename Types<Real>::Integers;
template <class Real>
constexpr int kRegisterLanes = kRegisterBytes / sizeof(Real);

// Two registers that go through the same operations: while one waits for a result, the other keeps the CPU busy.
template <class Real>
struct Mask {
  Integers<Real> low, high;
};
template <class Real>
struct Vec {
  using R = Register<Real>;
  R low, high;

  // Copied register by register: GCC copies a plain struct in smaller pieces, and then stalls when it loads the whole.
  Vec() = default;
  TUSTIN_INLINE Vec(R low, R high) : low(low), high(high) {}
  TUSTIN_INLINE Vec(const Vec& v) : low(v.low), high(v.high) {}
  TUSTIN_INLINE Vec& operator=(const Vec& v) {
    low = v.low, high = v.high;
    return *this;
  }

  friend TUSTIN_INLINE Vec operator-(Vec a) { return {-a.low, -a.high}; }
#define TUSTIN_OPERATOR(op)                                                                         \
  friend TUSTIN_INLINE Vec operator op(Vec a, Vec b) { return {a.low op b.low, a.high op b.high}; } \
  friend TUSTIN_INLINE Vec operator op(Vec a, Real b) { return {a.low op b, a.high op b}; }         \
  friend TUSTIN_INLINE Vec operator op(Real a, Vec b) { return {a op b.low, a op b.high}; }         \
  TUSTIN_INLINE Vec& operator op## = (Vec b) { return *this = *this op b; }                         \
  TUSTIN_INLINE Vec& operator op## = (Real b) { return *this = *this op b; }
  TUSTIN_OPERATOR(+)
  TUSTIN_OPERATOR(-)
  TUSTIN_OPERATOR(*)
  TUSTIN_OPERATOR(/)
#undef TUSTIN_OPERATOR
  friend TUSTIN_INLINE Mask<Real> operator<(Vec a, Vec b) { return {a.low < b.low, a.high < b.high}; }
  friend TUSTIN_INLINE Mask<Real> operator<(Vec a, Real b) { return {a.low < b, a.high < b}; }
  friend TUSTIN_INLINE Mask<Real> operator>(Vec a, Real b) { return {a.low > b, a.high > b}; }
};
template <class Real>
constexpr int kLanes = 2 * kRegisterLanes<Real>;

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
template <class Real>
TUSTIN_INLINE Vec<Real> load(const Real* p) {
  return {load_register<Register<Real>>(p), load_register<Register<Real>>(p + kRegisterLanes<Real>)};
}
template <class Real>
TUSTIN_INLINE void store(Real* p, Vec<Real> v) {
  store_register(p, v.low);
  store_register(p + kRegisterLanes<Real>, v.high);
}

// A product that is to be rounded by itself, and not fused with the additions that follow.
template <class Real>
TUSTIN_INLINE Vec<Real> rounded(Vec<Real> product) {
#if defined(__x86_64__)
  asm("" : "+v"(product.low), "+v"(product.high));
#elif defined(__aarch64__)
  asm("" : "+w"(product.low), "+w"(product.high));
#endif
  return product;
}

template <class Real>
TUSTIN_INLINE Vec<Real> splat(Real x) {
  const Register<Real> r = (Register<Real>{} + 1) * x;  // compiles to a broadcast; filling lane by lane does not
  return {r, r};
}
template <class Real>
TUSTIN_INLINE Vec<Real> select(Mask<Real> mask, Vec<Real> yes, Vec<Real> no) {
  return {mask.low ? yes.low : no.low, mask.high ? yes.high : no.high};
}
template <class Real>
TUSTIN_INLINE Vec<Real> magnitude(Vec<Real> x) {
  return select(x < 0, -x, x);
}
template <class Real>
TUSTIN_INLINE bool all(Mask<Real> mask) {
  const Integers<Real> both = mask.low & mask.high;
  bool every = true;
  for (int i = 0; i < kRegisterLanes<Real>; ++i) every &= both[i] != 0;
  return every;
}

// The larger (smaller) of two; a NaN on the right passes through. The compilers do not find the instruction by themselves.
#if defined(__AVX512F__)
#define TUSTIN_INTRINSIC(name) _mm512_##name
#elif defined(__AVX__)
#define TUSTIN_INTRINSIC(name) _mm256_##name
#elif defined(__SSE2__)
#define TUSTIN_INTRINSIC(name) _mm_##name
#endif
#ifdef TUSTIN_INTRINSIC
TUSTIN_INLINE Register<float> larger(Register<float> a, Register<float> b) { return TUSTIN_INTRINSIC(max_ps)(a, b); }
TUSTIN_INLINE Register<float> smaller(Register<float> a, Register<float> b) { return TUSTIN_INTRINSIC(min_ps)(a, b); }
TUSTIN_INLINE Register<double> larger(Register<double> a, Register<double> b) { return TUSTIN_INTRINSIC(max_pd)(a, b); }
TUSTIN_INLINE Register<double> smaller(Register<double> a, Register<double> b) {
  return TUSTIN_INTRINSIC(min_pd)(a, b);
}
#undef TUSTIN_INTRINSIC
#else
template <class R>
TUSTIN_INLINE R larger(R a, R b) {
  return a > b ? a : b;
}
template <class R>
TUSTIN_INLINE R smaller(R a, R b) {
  return a < b ? a : b;
}
#endif
template <class Real>
TUSTIN_INLINE Vec<Real> at_least(Vec<Real> low, Vec<Real> x) {
  return {larger(low.low, x.low), larger(low.high, x.high)};
}
template <class Real>
TUSTIN_INLINE Vec<Real> at_most(Vec<Real> top, Vec<Real> x) {
  return {smaller(top.low, x.low), smaller(top.high, x.high)};
}

// Interleaves the first (second) halves of two registers: `inner` inside each sixteen bytes of them, `outer` sixteen bytes
// at a time. Any transposition is built of these steps, and none moves single numbers across sixteen bytes, which is slow.
#define TUSTIN_INTERLEAVE(NAME, REAL, FIRST, SECOND)                               \
  TUSTIN_INLINE Register<REAL> NAME##_first(Register<REAL> a, Register<REAL> b) {  \
    return __builtin_shufflevector FIRST;                                          \
  }                                                                                \
  TUSTIN_INLINE Register<REAL> NAME##_second(Register<REAL> a, Register<REAL> b) { \
    return __builtin_shufflevector SECOND;                                         \
  }
#if defined(__AVX512F__)
TUSTIN_INTERLEAVE(inner, float, (a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                  (a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31))
TUSTIN_INTERLEAVE(inner, double, (a, b, 0, 8, 2, 10, 4, 12, 6, 14), (a, b, 1, 9, 3, 11, 5, 13, 7, 15))
TUSTIN_INTERLEAVE(outer, float, (a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                  (a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31))
TUSTIN_INTERLEAVE(outer, double, (a, b, 0, 1, 8, 9, 2, 3, 10, 11), (a, b, 4, 5, 12, 13, 6, 7, 14, 15))
#elif defined(__AVX__)
TUSTIN_INTERLEAVE(inner, float, (a, b, 0, 8, 1, 9, 4, 12, 5, 13), (a, b, 2, 10, 3, 11, 6, 14, 7, 15))
TUSTIN_INTERLEAVE(inner, double, (a, b, 0, 4, 2, 6), (a, b, 1, 5, 3, 7))
TUSTIN_INTERLEAVE(outer, float, (a, b, 0, 1, 2, 3, 8, 9, 10, 11), (a, b, 4, 5, 6, 7, 12, 13, 14, 15))
TUSTIN_INTERLEAVE(outer, double, (a, b, 0, 1, 4, 5), (a, b, 2, 3, 6, 7))
#else
TUSTIN_INTERLEAVE(inner, float, (a, b, 0, 4, 1, 5), (a, b, 2, 6, 3, 7))
TUSTIN_INTERLEAVE(inner, double, (a, b, 0, 2), (a, b, 1, 3))
TUSTIN_INTERLEAVE(outer, float, (a, b, 0, 1, 2, 3), (a, b, 4, 5, 6, 7))  // never called: there is one sixteen only
TUSTIN_INTERLEAVE(outer, double, (a, b, 0, 1), (a, b, 2, 3))
#endif
#undef TUSTIN_INTERLEAVE

template <class Real>
constexpr int kInner = 16 / sizeof(Real);  // numbers in sixteen bytes
template <class Real>
constexpr int kOuter = kRegisterLanes<Real> / kInner<Real>;

// Transposes a square of registers in place: each pass interleaves the first half of the rows with the second.
template <class Real>
TUSTIN_INLINE void transpose(Register<Real>* rows) {
  constexpr int inner = kInner<Real>, outer = kOuter<Real>;
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

// The sums of as many rows as a register has lanes, in one register; the order of the additions is fixed.
template <class Real>
TUSTIN_INLINE Register<Real> sum_rows(Register<Real>* v) {
  constexpr int inner = kInner<Real>, outer = kOuter<Real>;
  for (int first = 0; first < outer * inner; first += inner)
    for (int half = inner / 2; half > 0; half /= 2)
      for (int i = first; i < first + half; ++i) v[i] = inner_first(v[i], v[i + half]) + inner_second(v[i], v[i + half]);
  for (int half = outer / 2; half > 0; half /= 2)
    for (int i = 0; i < half * inner; i += inner)
      v[i] = outer_first(v[i], v[i + half * inner]) + outer_second(v[i], v[i + half * inner]);
  return v[0];
}

}  // namespace TUSTIN_LEVEL
