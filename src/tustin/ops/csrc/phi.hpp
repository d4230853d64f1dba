// Exponentials and φ-functions for whole vectors: no branches, no tables, no division, no -ffast-math.
#pragma once

#include "vec.hpp"

namespace TUSTIN_LEVEL {

// Polynomial coefficients, lowest power first.
//   kExp:   (e^r − 1 − r)/r²  on |r| ≤ ln2/2     float: minimax, 6e-8; double: the series
//   kLog1p: log(1 + x)/x      on 0 ≤ x ≤ 1       at Chebyshev's points: float 5e-9, double 2e-18
template <class Real>
struct Constants;
template <>
struct Constants<float> {
  static constexpr int kMantissa = 23;
  static constexpr float kRound = 12582912.0f + 127.0f;  // 1.5·2²³ + bias: adding it rounds, and leaves k + bias below
  static constexpr float kMinExponent = -87.0f, kMaxExponent = 88.0f;
  static constexpr float kForgotten = -17.0f;  // below, e^z is lost beside 1
  static constexpr float kExp[] = {0.500000002693f, 0.16666577006f, 0.041666375249f, 0.00836317525547f,
                                   0.00139411136637f};
  static constexpr float kLog1p[] = {0.9999999947f,  -0.4999989265f, 0.333297105f,    -0.2495161626f, 0.1966327426f,
                                     -0.1526966707f, 0.105436238f,   -0.05637361283f, 0.01954252726f, -0.003176057018f};
};
template <>
struct Constants<double> {
  static constexpr int kMantissa = 52;
  static constexpr double kRound = 6755399441055744.0 + 1023.0;
  static constexpr double kMinExponent = -708.0, kMaxExponent = 709.0;
  static constexpr double kForgotten = -37.0;
  static constexpr double kExp[] = {1. / 2,         1. / 6,           1. / 24,          1. / 120,     1. / 720,
                                    1. / 5040,      1. / 40320,       1. / 362880,      1. / 3628800, 1. / 39916800,
                                    1. / 479001600, 1. / 6227020800., 1. / 87178291200.};
  static constexpr double kLog1p[] = {
      0.999999999999999998,    -0.499999999999998339,    0.333333333333064607,   -0.249999999982648114,
      0.199999999403498146,    -0.166666654036910924,    0.142856963095673096,   -0.124998177695139539,
      0.111097408964601933,    -0.0999212782176001683,   0.090555675155907331,   -0.0820716368043742897,
      0.0732901525553495438,   -0.0628875467078314627,   0.0500774239539170403,  -0.0355305254014412454,
      0.0215110226533569742,   -0.0106146963635855298,   0.00404780989346751202, -0.00110938096817003433,
      0.000193307945534311456, -0.0000160202167255381931};
};

// Σ c_i x^i by Horner's rule: one constant per operation, which it can take straight from memory.
template <class Real, size_t terms>
TUSTIN_INLINE Vec<Real> polynomial(Vec<Real> x, const Real (&c)[terms]) {
  Vec<Real> sum = fma(x, c[terms - 1], c[terms - 2]);
  for (size_t i = terms - 2; i > 0; --i) sum = fma(sum, x, c[i - 1]);
  return sum;
}

constexpr double kPerNaperian = 1.44269504088896340736;  // 1/ln2

// e^z = s·(1 + r + r²q) with z = k·ln2 + r and s = 2^k. For |z| < 0.34, k = 0: then r is z to the bit and s is 1.
// `bounded` promises that e^z neither overflows nor underflows.
template <class Real, bool bounded = false>
struct Exponential {
  using V = Vec<Real>;
  V z, s, r, q;

  TUSTIN_INLINE explicit Exponential(V x) : Exponential(x, fma(x, Real(kPerNaperian), Constants<Real>::kRound)) {}
  // `rounded` is x/ln2 + kRound, for a caller who gets it sooner.
  TUSTIN_INLINE Exponential(V x, V rounded) : z(x) {
    using K = Constants<Real>;
    V inside = x;
    if constexpr (!bounded) {
      const V low = splat(K::kMinExponent), high = splat(K::kMaxExponent);
      inside = at_most(high, at_least(low, x));
      const V per_naperian = splat(Real(kPerNaperian)), round = splat(K::kRound);
      rounded = at_most(fma(high, per_naperian, round), at_least(fma(low, per_naperian, round), rounded));
    }
    const V k = rounded - K::kRound;
    r = fnma(k, Real(0.69314718055994530942), inside);
    if (sizeof(Real) == 8) r = fnma(k, Real(2.3190468138462996e-17), r);  // what ln2 loses in a double
    s = each<V>(
        [](Register<Real> bits) TUSTIN_INLINED { return (Register<Real>)((Integers<Real>)bits << K::kMantissa); }, rounded);
    q = polynomial(r, K::kExp);
  }
  TUSTIN_INLINE V plus(V rest) const { return fma(s, fma(r * r, q, r), rest); }  // e^z − s + rest
  TUSTIN_INLINE V minus_one() const { return plus(s - 1); }
  // And e^z − 1 − z = s·r²q + (s·r + (s − 1) − z). Where |z| is small the bracket is 0 to the bit, so nothing cancels.
  TUSTIN_INLINE void minus_one(V& expm1, V& minus_z) const {
    const V s_r = s * r, s_r_r = s_r * r, rest = s_r + (s - 1);  // not fused: additions have ports of their own
    expm1 = fma(s_r_r, q, rest), minus_z = fma(s_r_r, q, rest - z);
  }
};

template <class Real>
TUSTIN_INLINE Vec<Real> exp(Vec<Real> x) {
  const Exponential<Real> e(x);
  return e.plus(e.s);
}

template <class Real>
constexpr Real kBound = Constants<Real>::kMaxExponent - 1;  // of |z|: what `bounded` promises

template <class Real>
constexpr bool kHasQuickExpm1 = false;
constexpr double kStepsPerNaperian = 8 * kPerNaperian;

#if TUSTIN_HAS_FMA
// e^z − 1 at two thirds of the cost, for |z| < kBound. With 8z/ln2 = k + t, |t| ≤ ½: e^z = s·e^{t·ln2/8} and s = 2^{k/8}, its
// mantissa from a table of eight. The polynomial, minimax with the exact slope at 0, is good to 3e-8; with the entries' own
// rounding e^z − 1 is off by less than 1.3e-7 for z < 0, 2.6e-7 e^z for z > 0.
template <>
inline constexpr bool kHasQuickExpm1<float> = true;

// From Δ and the scaled A, 8A/ln2.
TUSTIN_INLINE Vec<float> quick_expm1(Vec<float> delta, Vec<float> scaled_A) {
  constexpr float kRound = 12582912.0f + 8 * 127.0f;
  constexpr Eight kMantissas = {{0, -0x46a3e, -0x7c810, -0xa0129, -0xafb0d, -0xa98d6, -0x8bb03, -0x53f39}};  // 2^{j/8}, less j/8
  const Vec<float> rounded = fma(delta, scaled_A, kRound), k = rounded - kRound, t = fms(delta, scaled_A, k);
  const Vec<float> s = each<Vec<float>>(
      [&](Register<float> r) TUSTIN_INLINED {
        const auto bits = (Integers<float>)r;
        return (Register<float>)(look_up(kMantissas, bits) + (bits << 20));
      },
      rounded);
  const Vec<float> p = fma(t, fma(t, 0.00010840770938f, 0.0037540231675f), 0.08664339757f);
  return fma(s, t * p, s - 1);
}
#endif

// 1/(1 + e^{−x}). Where e^{−x} would overflow it is 0·x: zero, and NaN at −∞, as PyTorch's SiLU has it.
template <class Real>
TUSTIN_INLINE Vec<Real> sigmoid(Vec<Real> x) {
  const Vec<Real> least = splat(Constants<Real>::kMinExponent);
  const Exponential<Real, true> e(at_least(least, -x));  // bounded below; where it is not above, it is not used
  return select(x < least, x * Real(0), 1 / e.plus(e.s + 1));
}

// log(1 + e^x) from x and e = e^{−|x|}, good to the last bits also where it is small; above 20 it is x, as in PyTorch.
template <class Real>
TUSTIN_INLINE Vec<Real> softplus(Vec<Real> x, Vec<Real> e) {
  return select(x > 20, x, fma(e, polynomial(e, Constants<Real>::kLog1p), at_least(x, Vec<Real>{})));
}
// Its derivative, 1/(1 + e^{−x}), from the same.
template <class Real>
TUSTIN_INLINE Vec<Real> softplus_slope(Vec<Real> x, Vec<Real> e) {
  return select(x > 20, splat(Real(1)), select(x > 0, splat(Real(1)), e) / (1 + e));
}

// The powers of the step that the ladder climbs by, once per token: Δ^j/j!
template <class Real>
struct Powers {
  Vec<Real> d1, d2, d3, d4;
  TUSTIN_INLINE explicit Powers(Vec<Real> delta)
      : d1(delta), d2(delta * delta * Real(0.5)), d3(d2 * delta * Real(1. / 3)), d4(d3 * delta * Real(0.25)) {}
};

// e^z − 1 and x_j = Δ^j·φ_j(z), where A·x_{j+1} = x_j − Δ^j/j!.
template <class Real>
struct Ladder {
  using V = Vec<Real>;
  V expm1, x1, x2, x3, x4, x5;

  // From w = e^z − 1 − z, which loses nothing, up. Each step divides the rounding error by A: for |A| that is not small.
  static TUSTIN_INLINE Ladder quick(const Powers<Real>& d, V w, V A, V inverse_A) {
    const V z = d.d1 * A;
    Ladder up;
    up.expm1 = select(z < Constants<Real>::kForgotten, splat(Real(-1)), w + z);
    up.x1 = up.expm1 * inverse_A;
    up.x2 = w * inverse_A * inverse_A;
    up.climb(d, inverse_A);
    return up;
  }

  // For |z| < 2 the series of x_5 and down, which loses nothing, at A = 0 neither; otherwise up.
  TUSTIN_APART static Ladder exact(const Powers<Real>& d, V A, V inverse_A) {
    Ladder up;
    up.expm1 = Exponential<Real>(d.d1 * A).minus_one();
    up.x1 = up.expm1 * inverse_A;
    up.x2 = (up.x1 - d.d1) * inverse_A;
    up.climb(d, inverse_A);

    constexpr int kTerms = sizeof(Real) == 8 ? 22 : 13;
    const V z = d.d1 * A;
    V series = splat(Real(1));  // 5!·φ_5(z) = 1 + z/6·(1 + z/7·(1 + …))
    for (int j = kTerms; j > 0; --j) series = fma(series * z, 1 / Real(j + 5), 1);
    Ladder down;
    down.x5 = series * d.d4 * d.d1 * Real(0.2);
    down.x4 = fma(A, down.x5, d.d4);
    down.x3 = fma(A, down.x4, d.d3);
    down.x2 = fma(A, down.x3, d.d2);
    down.x1 = fma(A, down.x2, d.d1);
    down.expm1 = A * down.x1;

    return choose(magnitude(z) < 2, down, up);
  }
  friend TUSTIN_INLINE Ladder choose(Mask<Real> mask, const Ladder& yes, const Ladder& no) {
    return {select(mask, yes.expm1, no.expm1), select(mask, yes.x1, no.x1), select(mask, yes.x2, no.x2),
            select(mask, yes.x3, no.x3),       select(mask, yes.x4, no.x4), select(mask, yes.x5, no.x5)};
  }

 private:
  TUSTIN_INLINE void climb(const Powers<Real>& d, V inverse_A) {
    x3 = (x2 - d.d2) * inverse_A;
    x4 = (x3 - d.d3) * inverse_A;
    x5 = (x4 - d.d4) * inverse_A;
  }
};

}  // namespace TUSTIN_LEVEL
