// Short vectors of the machine's own width, written with the compilers' vector extensions (GCC and Clang alike), so
// that one source serves every instruction set. This file is compiled once per CPU level, each in a namespace of its
// own; nothing here may come from a std:: template, or the linker could hand one level another level's code.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace TUSTIN_LEVEL {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class Real>
struct Types;
template <>
struct Types<float> {
  using Int = int32_t;
  typedef float Vec __attribute__((vector_size(kVectorBytes), may_alias));
  typedef int32_t IntVec __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Types<double> {
  using Int = int64_t;
  typedef double Vec __attribute__((vector_size(kVectorBytes), may_alias));
  typedef int64_t IntVec __attribute__((vector_size(kVectorBytes)));
};

template <class Real>
using Vec = typename Types<Real>::Vec;
template <class Real>
using IntVec = typename Types<Real>::IntVec;
template <class Real>
constexpr int kLanes = kVectorBytes / sizeof(Real);

template <class Real>
inline Vec<Real> load(const Real* p) {
  Vec<Real> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class Real>
inline void store(Real* p, Vec<Real> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

template <class Real>
inline Vec<Real> splat(Real x) {
  return (Vec<Real>{} + 1) * x;  // compiles to a broadcast; filling the lanes one by one does not
}

// The larger (smaller) of two; a NaN on the right passes through. The compilers do not find the instruction by themselves.
#if defined(__AVX512F__)
inline Vec<float> at_least(Vec<float> low, Vec<float> x) { return _mm512_max_ps(low, x); }
inline Vec<float> at_most(Vec<float> high, Vec<float> x) { return _mm512_min_ps(high, x); }
inline Vec<double> at_least(Vec<double> low, Vec<double> x) { return _mm512_max_pd(low, x); }
inline Vec<double> at_most(Vec<double> high, Vec<double> x) { return _mm512_min_pd(high, x); }
#elif defined(__AVX__)
inline Vec<float> at_least(Vec<float> low, Vec<float> x) { return _mm256_max_ps(low, x); }
inline Vec<float> at_most(Vec<float> high, Vec<float> x) { return _mm256_min_ps(high, x); }
inline Vec<double> at_least(Vec<double> low, Vec<double> x) { return _mm256_max_pd(low, x); }
inline Vec<double> at_most(Vec<double> high, Vec<double> x) { return _mm256_min_pd(high, x); }
#elif defined(__SSE2__)
inline Vec<float> at_least(Vec<float> low, Vec<float> x) { return _mm_max_ps(low, x); }
inline Vec<float> at_most(Vec<float> high, Vec<float> x) { return _mm_min_ps(high, x); }
inline Vec<double> at_least(Vec<double> low, Vec<double> x) { return _mm_max_pd(low, x); }
inline Vec<double> at_most(Vec<double> high, Vec<double> x) { return _mm_min_pd(high, x); }
#else
template <class V>
inline V at_least(V low, V x) { return low > x ? low : x; }
template <class V>
inline V at_most(V high, V x) { return high < x ? high : x; }
#endif
template <class V>
inline V magnitude(V x) { return x < 0 ? -x : x; }

// Interleaves the halves of two vectors: the two steps from which any transposition is built.

#define TUSTIN_SHUFFLES(REAL, LOW, HIGH)                                                             \
  inline Vec<REAL> interleave_low(Vec<REAL> a, Vec<REAL> b) { return __builtin_shufflevector LOW; }  \
  inline Vec<REAL> interleave_high(Vec<REAL> a, Vec<REAL> b) { return __builtin_shufflevector HIGH; }

#if defined(__AVX512F__)
TUSTIN_SHUFFLES(float, (a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                (a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
TUSTIN_SHUFFLES(double, (a, b, 0, 8, 1, 9, 2, 10, 3, 11), (a, b, 4, 12, 5, 13, 6, 14, 7, 15))
#elif defined(__AVX__)
TUSTIN_SHUFFLES(float, (a, b, 0, 8, 1, 9, 2, 10, 3, 11), (a, b, 4, 12, 5, 13, 6, 14, 7, 15))
TUSTIN_SHUFFLES(double, (a, b, 0, 4, 1, 5), (a, b, 2, 6, 3, 7))
#else
TUSTIN_SHUFFLES(float, (a, b, 0, 4, 1, 5), (a, b, 2, 6, 3, 7))
TUSTIN_SHUFFLES(double, (a, b, 0, 2), (a, b, 1, 3))
#endif
#undef TUSTIN_SHUFFLES

// Transposes a square of vectors in place: each pass interleaves the first half of the rows with the second.
template <class Real>
inline void transpose(Vec<Real>* rows) {
  constexpr int W = kLanes<Real>;
  for (int pass = 1; pass < W; pass *= 2) {
    Vec<Real> next[W];
    for (int i = 0; i < W / 2; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + W / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + W / 2]);
    }
    for (int i = 0; i < W; ++i) rows[i] = next[i];
  }
}

// The sum of each of W rows, as one vector; the order of the additions is fixed.
template <class Real>
inline Vec<Real> sum_rows(const Vec<Real>* rows) {
  constexpr int W = kLanes<Real>;
  Vec<Real> v[W];
  for (int i = 0; i < W; ++i) v[i] = rows[i];
  for (int half = W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      v[i] = interleave_low(v[i], v[i + half]) + interleave_high(v[i], v[i + half]);
  return v[0];
}

}  // namespace TUSTIN_LEVEL
