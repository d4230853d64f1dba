// The rules that hold the input, and integrate it exactly.
#pragma once

#include "step.hpp"

namespace TUSTIN_LEVEL {

// The rules with α = e^z and β = ∫₀^Δ e^{A(Δ−τ)} P(τ) dτ, where P(τ) = Σ_j p_j τ^{j−1}/(j−1)!. With x_j = Δ^j φ_j(z):
//   β = Σ_j p_j x_j        dx_j/dΔ = x_{j−1}        dx_j/dA = Δ·x_j − j·x_{j+1} = (Δ·x_{j−1} − j·x_j)/A
// Put the ladder x_1 = (e^z − 1)/A, x_2 = (x_1 − Δ)/A, x_3 = (x_2 − Δ²/2)/A, … into β, and it is linear in e^z − 1 and the
// powers of Δ, with weights that depend on A alone: that is how step computes it. Without x_1 that would cancel where z is
// small, and w = e^z − 1 − z takes the place of e^z − 1. A rule is its p.
//
// The gradients need α = 1 + z + w, β and σ = Σ_j j p_j x_{j+1}. All else is in the states before and after, h and h⁺:
//   dh⁺/dΔ = A·h⁺ + P(Δ)·B·u        dh⁺/dA = Δ·h⁺ − σ·B·u
// For zoh the first would cancel where e^z is small; there it is e^z·(A·h + B·u).
template <class Real, class Rule>
struct Hold {
  using V = Vec<Real>;
  static constexpr bool kHasFast = true, kTwoSamples = false, kProducts = false, kMixes = false;
  static constexpr Real kFast = kBound<Real>;
  static constexpr Real p1 = Rule::p[0], p2 = Rule::p[1], p3 = Rule::p[2], p4 = Rule::p[3];
  static_assert(p1 == 0 || p1 == 1);
  static constexpr int kTerms = p4 != 0 ? 4 : p3 != 0 ? 3 : p2 != 0 ? 2 : 1;  // up to the last p

  struct Token : Powers<Real> {
    V input;
    TUSTIN_INLINE Token(V delta, V u) : Powers<Real>(delta), input(u) {}
    template <bool fast>
    TUSTIN_INLINE V per_delta() const {
      if constexpr (kTerms == 1) return input;
      const V P_u = sum(splat(Real(1)), this->d1, this->d2, this->d3, p1, p2, p3, p4) * input;
      // A step so long that no state takes the quick formulas: then every push is 0, and P(Δ) may be infinite.
      return fast ? P_u : select(magnitude(this->d1) * Real(Rule::small) < kBound<Real>, P_u, V{});
    }
    TUSTIN_INLINE V per_u() const { return splat(Real(1)); }
  };
  struct Channel {
    V A, scaled, inverse_A;  // A, A/ln2 and 1/A
    V b[kTerms];  // β = b₀(e^z − 1) − b₁Δ − b₂Δ²/2 − b₃Δ³/6 = b₀w + p₁Δ − b₂Δ²/2 − b₃Δ³/6
    V s[kTerms];  // σ = s₀w − s₁Δ²/2 − s₂Δ³/6 − s₃Δ⁴/24
    bool exact;   // some |A| is too small for that
    TUSTIN_INLINE Channel(V A, V i) : A(A), scaled(A * Real(kPerNaperian)), inverse_A(i) {
      const V b3 = i * p4, b2 = i * (p3 + b3), b1 = i * (p2 + b2), all_b[] = {i * (p1 + b1), b1, b2, b3};
      const V s3 = i * (4 * p4), s2 = i * (3 * p3 + s3), s1 = i * (2 * p2 + s2), all_s[] = {i * i * (p1 + s1), s1, s2, s3};
      for (int j = 0; j < kTerms; ++j) b[j] = all_b[j], s[j] = all_s[j];
      exact = !all(not_small());
    }
    TUSTIN_INLINE auto not_small() const { return magnitude(A) >= splat(Real(Rule::small)); }
  };

  template <bool fast, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const Exponential<Real, fast> e(t.d1 * c.A, fma(t.d1, c.scaled, Constants<Real>::kRound));
    const V v = t.input * B;
    V expm1;
    e.minus_one(expm1, kept);
    const V after = quick_step(t, c, h, v, expm1, kept);
    if (fast || !c.exact) return after;
    const auto x = Ladder<Real>::exact(t, c.A, c.inverse_A);
    return select(c.not_small(), after, fma(h, x.expm1, fma(beta(x), v, h)));
  }

  template <bool fast, class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V h, V after, V w, Entry B, V d,
                                                 const Sums<Real>& sums) {
    const V z = t.d1 * c.A, expm1 = select(z < Constants<Real>::kForgotten, splat(Real(-1)), w + z);
    const V before = fma(d, expm1, d), rate = kTerms == 1 ? before * h : d * after, d_v = d * B * t.input;
    const AdjointStep<Real> quick = {before, fma(rate, c.A, sums.along), kTerms == 1 ? before : d,
                                     fma(t.d1, d * after, fnma(d_v, sigma(t, c, w), sums.A)),
                                     kTerms == 1 ? d * (expm1 * c.b[0]) : d * beta(t, c, w)};
    if constexpr (fast) return quick;
    const auto ordinary = (magnitude(z) < kBound<Real>) & c.not_small();
    return all(ordinary) ? quick : choose(ordinary, quick, careful(t, c, h, w, d, d_v, sums));
  }

 private:
  static TUSTIN_INLINE V quick_step(const Token& t, const Channel& c, V h, V v, V expm1, V w) {
    if constexpr (p1 == 0) return fma(h, expm1, fma(w, c.b[0] * v, h));
    V rest = h;  // and what hangs on no exponential
    if constexpr (kTerms == 2) rest = fnma(t.d1 * c.b[1], v, rest);
    if constexpr (kTerms == 3) rest = fnma(fma(t.d1, c.b[1], t.d2 * c.b[2]), v, rest);
    if constexpr (kTerms == 4) rest = fnma(fma(t.d1, c.b[1], fma(t.d2, c.b[2], t.d3 * c.b[3])), v, rest);
    return fma(expm1, fma(c.b[0], v, h), rest);
  }

  // Where |z| is so large that the quick formulas cancel, and where |A| is too small for them.
  TUSTIN_APART static AdjointStep<Real> careful(const Token& t, const Channel& c, V h, V w, V d, V d_v,
                                                const Sums<Real>& sums) {
    auto x = Ladder<Real>::quick(t, w, c.A, c.inverse_A);
    if (c.exact) x = choose(c.not_small(), x, Ladder<Real>::exact(t, c.A, c.inverse_A));
    const V b = beta(x), b_delta = sum(x.expm1 + 1, x.x1, x.x2, x.x3, p1, p2, p3, p4);
    // dβ/dA in both forms: far out the first cancels, and the second does not.
    const V near = fms(t.d1, b, sum(x.x2, x.x3, x.x4, x.x5, p1, 2 * p2, 3 * p3, 4 * p4));
    const V far = fms(t.d1, b_delta, sum(x.x1, x.x2, x.x3, x.x4, p1, 2 * p2, 3 * p3, 4 * p4)) * c.inverse_A;
    const V b_A = select(t.d1 * c.A < Constants<Real>::kMinExponent, far, near);
    const V before = fma(d, x.expm1, d), rate = before * h;
    return {before, fma(d_v, b_delta, fma(rate, c.A, sums.along)), V{}, fma(t.d1, rate, fma(d_v, b_A, sums.A)), d * b};
  }

  static TUSTIN_INLINE V beta(const Ladder<Real>& x) { return sum(x.x1, x.x2, x.x3, x.x4, p1, p2, p3, p4); }
  static TUSTIN_INLINE V beta(const Token& t, const Channel& c, V w) {
    V b = p1 != 0 ? fma(w, c.b[0], t.d1) : w * c.b[0];
    if constexpr (kTerms > 2) b = fnma(t.d2, c.b[2], b);
    if constexpr (kTerms > 3) b = fnma(t.d3, c.b[3], b);
    return b;
  }
  static TUSTIN_INLINE V sigma(const Token& t, const Channel& c, V w) {
    V s = w * c.s[0];
    if constexpr (kTerms > 1) s = fnma(t.d2, c.s[1], s);
    if constexpr (kTerms > 2) s = fnma(t.d3, c.s[2], s);
    if constexpr (kTerms > 3) s = fnma(t.d4, c.s[3], s);
    return s;
  }
  // Σ_j f_j y_j without the terms that the rule does not have.
  static TUSTIN_INLINE V sum(V y1, V y2, V y3, V y4, Real f1, Real f2, Real f3, Real f4) {
    V total{};
    if constexpr (p1 != 0) total = y1 * f1;
    if constexpr (p2 != 0) total = fma(y2, f2, total);
    if constexpr (p3 != 0) total = fma(y3, f3, total);
    if constexpr (p4 != 0) total = fma(y4, f4, total);
    return total;
  }
};

}  // namespace TUSTIN_LEVEL
