// Vectors of 64 bytes, 16 floats or 8 doubles, on every CPU: one register or several that go through the same operations.
// While one waits for a result, another keeps the CPU busy. As a vector holds the same numbers everywhere, so does whatever
// is decided or summed a vector at a time.
#pragma once

#include "registers.hpp"

namespace TUSTIN_LEVEL {

constexpr int kVecBytes = 64;
template <class Real>
constexpr int kLanes = kVecBytes / sizeof(Real);

// A vector is one register or two shorter vectors. The result of a comparison is a Mask of the same form.
template <class Real, int bytes = kVecBytes, bool single = (bytes <= kRegisterBytes)>
struct Mask;
template <class Real, int bytes>
struct Mask<Real, bytes, true> {
  static constexpr int kParts = 1;
  Integers<Real, bytes> r;
};
template <class Real, int bytes>
struct Mask<Real, bytes, false> {
  using Half = Mask<Real, bytes / 2>;
  static constexpr int kParts = 2 * Half::kParts;
  Half low, high;
};

// Applies a function to the registers of vectors (or masks), one after the other.
template <class Out, class Function, class... In>
TUSTIN_INLINE Out each(Function f, const In&... in) {
  if constexpr (Out::kParts == 1)
    return Out{f(in.r...)};
  else
    return Out{each<typename Out::Half>(f, in.low...), each<typename Out::Half>(f, in.high...)};
}

template <class Real, int bytes>
TUSTIN_INLINE Mask<Real, bytes> operator&(Mask<Real, bytes> a, Mask<Real, bytes> b) {
  return each<Mask<Real, bytes>>([](auto x, auto y) TUSTIN_INLINED { return x & y; }, a, b);
}

template <class Real, class V, class M>
struct Operators {
#define TUSTIN_OPERATOR(RESULT, op)                                                    \
  friend TUSTIN_INLINE RESULT operator op(V a, V b) {                                  \
    return each<RESULT>([](auto x, auto y) TUSTIN_INLINED { return x op y; }, a, b);   \
  }
  TUSTIN_OPERATOR(V, +)
  TUSTIN_OPERATOR(V, -)
  TUSTIN_OPERATOR(V, *)
  TUSTIN_OPERATOR(V, /)
  TUSTIN_OPERATOR(M, <)
  TUSTIN_OPERATOR(M, >)
  TUSTIN_OPERATOR(M, >=)
#undef TUSTIN_OPERATOR
  friend TUSTIN_INLINE V operator-(V a) {
    return each<V>([](auto x) TUSTIN_INLINED { return -x; }, a);
  }
  friend TUSTIN_INLINE V& operator+=(V& a, V b) { return a = a + b; }
  friend TUSTIN_INLINE V& operator*=(V& a, V b) { return a = a * b; }

  // a·b + c, a·b − c and c − a·b, rounded once
  friend TUSTIN_INLINE V fma(V a, V b, V c) {
    return each<V>([](auto x, auto y, auto z) TUSTIN_INLINED { return fused(x, y, z); }, a, b, c);
  }
  friend TUSTIN_INLINE V fms(V a, V b, V c) {
    return each<V>([](auto x, auto y, auto z) TUSTIN_INLINED { return fused_minus(x, y, z); }, a, b, c);
  }
  friend TUSTIN_INLINE V fnma(V a, V b, V c) {
    return each<V>([](auto x, auto y, auto z) TUSTIN_INLINED { return minus_fused(x, y, z); }, a, b, c);
  }

  friend TUSTIN_INLINE V select(M mask, V yes, V no) {
    return each<V>([](auto m, auto y, auto n) TUSTIN_INLINED { return m ? y : n; }, mask, yes, no);
  }
  friend TUSTIN_INLINE V magnitude(V x) { return select(x < Real(0), -x, x); }

  // The larger (smaller) of two; a NaN on the right passes through.
  friend TUSTIN_INLINE V at_least(V low, V x) {
    return each<V>([](auto l, auto y) TUSTIN_INLINED { return larger(l, y); }, low, x);
  }
  friend TUSTIN_INLINE V at_most(V top, V x) {
    return each<V>([](auto t, auto y) TUSTIN_INLINED { return smaller(t, y); }, top, x);
  }
};

// Copied register by register: GCC copies a plain struct in smaller pieces, and then stalls when it loads the whole.
template <class Real, int bytes = kVecBytes, bool single = (bytes <= kRegisterBytes)>
struct Vec;
template <class Real, int bytes>
struct Vec<Real, bytes, true> : Operators<Real, Vec<Real, bytes>, Mask<Real, bytes>> {
  static constexpr int kParts = 1;
  using R = Register<Real, bytes>;
  R r;

  Vec() = default;
  TUSTIN_INLINE Vec(Real x) : r((R{} + 1) * x) {}  // compiles to a broadcast; filling lane by lane does not
  TUSTIN_INLINE explicit Vec(R r) : r(r) {}
  TUSTIN_INLINE Vec(const Vec& v) : r(v.r) {}
  TUSTIN_INLINE Vec& operator=(const Vec& v) {
    r = v.r;
    return *this;
  }
};
template <class Real, int bytes>
struct Vec<Real, bytes, false> : Operators<Real, Vec<Real, bytes>, Mask<Real, bytes>> {
  using Half = Vec<Real, bytes / 2>;
  static constexpr int kParts = 2 * Half::kParts;
  Half low, high;

  Vec() = default;
  TUSTIN_INLINE Vec(Real x) : low(x), high(x) {}
  TUSTIN_INLINE Vec(Half low, Half high) : low(low), high(high) {}
  TUSTIN_INLINE Vec(const Vec& v) : low(v.low), high(v.high) {}
  TUSTIN_INLINE Vec& operator=(const Vec& v) {
    low = v.low, high = v.high;
    return *this;
  }
};

template <class Real>
TUSTIN_INLINE Vec<Real> splat(Real x) {
  return x;
}

template <class V, class Real>
TUSTIN_INLINE V load_as(const Real* p) {
  if constexpr (V::kParts == 1)
    return V(load_register<typename V::R>(p));
  else
    return {load_as<typename V::Half>(p), load_as<typename V::Half>(p + sizeof(typename V::Half) / sizeof(Real))};
}
template <class Real>
TUSTIN_INLINE Vec<Real> load(const Real* p) {
  return load_as<Vec<Real>>(p);
}
template <class Real, int bytes>
TUSTIN_INLINE void store(Real* p, Vec<Real, bytes> v) {
  if constexpr (v.kParts == 1)
    store_register(p, v.r);
  else
    store(p, v.low), store(p + sizeof v.low / sizeof(Real), v.high);
}

template <class Real, int bytes>
TUSTIN_INLINE bool all(Mask<Real, bytes> mask) {
  if constexpr (mask.kParts > 1) {
    return all(mask.low & mask.high);
  } else {
    bool every = true;
    for (size_t i = 0; i < bytes / sizeof(Real); ++i) every &= mask.r[i] != 0;
    return every;
  }
}

// One register of a vector, by its number.
template <int i, class V>
TUSTIN_INLINE auto& part(V& v) {
  if constexpr (V::kParts == 1)
    return v.r;
  else if constexpr (i < V::kParts / 2)
    return part<i>(v.low);
  else
    return part<i - V::kParts / 2>(v.high);
}
template <int number>
struct Number {
  static constexpr int value = number;
};
// Calls f(Number<i>()) for the number of each register of a Vec.
template <class Real, int i = 0, class Function>
TUSTIN_INLINE void each_part(Function f) {
  f(Number<i>());
  if constexpr (i + 1 < Vec<Real>::kParts) each_part<Real, i + 1>(f);
}

// ── sums across a vector, in an order that does not depend on the width of a register ────────────────────────────────

template <class Real>
using HalfVec = Vec<Real, kVecBytes / 2>;
template <class Real>
constexpr int kHalfLanes = kLanes<Real> / 2;

template <class Real>
TUSTIN_INLINE HalfVec<Real> low_half(Vec<Real> v) {
  if constexpr (v.kParts == 1)
    return HalfVec<Real>(low_half(v.r));
  else
    return v.low;
}
template <class Real>
TUSTIN_INLINE HalfVec<Real> high_half(Vec<Real> v) {
  if constexpr (v.kParts == 1)
    return HalfVec<Real>(high_half(v.r));
  else
    return v.high;
}

template <class Real>
TUSTIN_INLINE Real sum(Vec<Real> v) {
  Real lanes[kLanes<Real>];
  store(lanes, v);
  for (int half = kLanes<Real> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// The sums of as many rows as a HalfVec has lanes, in one: inside each sixteen bytes first, then across them.
template <class Real>
TUSTIN_INLINE HalfVec<Real> sum_rows(HalfVec<Real>* v) {
  using V = HalfVec<Real>;
  constexpr int inner = kInner<Real>;
  for (int first = 0; first < 2 * inner; first += inner)
    for (int half = inner / 2; half > 0; half /= 2)
      for (int i = first; i < first + half; ++i)
        v[i] = each<V>([](auto a, auto b) TUSTIN_INLINED { return inner_first(a, b) + inner_second(a, b); }, v[i],
                       v[i + half]);
  if constexpr (V::kParts == 1)
    return V(outer_first(v[0].r, v[inner].r) + outer_second(v[0].r, v[inner].r));
  else
    return {v[0].low + v[0].high, v[inner].low + v[inner].high};
}

}  // namespace TUSTIN_LEVEL
