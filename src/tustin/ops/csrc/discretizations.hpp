// The discretizations. A rule says
//   Token:   what it wants to know of one token: of its steps Δ and inputs u, a vector of channels each;
//   Channel: what it wants to know of one state of these channels: of A;
//   step:    the state after the token, from the state h before it and B; and what is worth keeping of the work;
//   adjoint: from the gradient of the state after, what all other gradients are made of (docs/math.md derives it), with the
//            help of what step kept.
// `fast` promises that every e^z is a normal number and that no Channel is `exact`. It never changes a bit of the result.
// A rule is made known by its name in scan.h; a test compares these names with the Python registry.
#pragma once

#include "phi.hpp"

namespace TUSTIN_LEVEL {

// One state's share in the gradients. `before` is that of the state before the token; `along` and `A` are sums that it is
// added to, over the states and over the tokens; the others follow, with the factors that are the same for all states in
// Token:
//   d_Δ = along + per_delta·Σ_n B·push        d_u = per_u·Σ_n B·product        d_B = input·product
template <class Real>
struct AdjointStep {
  Vec<Real> before, along, push, A, product;

  friend TUSTIN_INLINE AdjointStep choose(Mask<Real> mask, const AdjointStep& yes, const AdjointStep& no) {
    return {select(mask, yes.before, no.before), select(mask, yes.along, no.along), select(mask, yes.push, no.push),
            select(mask, yes.A, no.A), select(mask, yes.product, no.product)};
  }
};
template <class Real>
struct Sums {
  Vec<Real> along, A;
};

// What most rules want to know: their step depends on Δ, u and B only through z and the product Δ·u·B.
template <class Real>
struct Plain {
  using V = Vec<Real>;
  static constexpr bool kHasFast = false;  // whether `fast` makes a difference
  struct Token {
    V delta, u, input;  // Δ, u and Δ·u
    TUSTIN_INLINE Token(V d, V u) : delta(d), u(u), input(d * u) {}
    template <bool>
    TUSTIN_INLINE V per_delta() const {
      return u;
    }
    TUSTIN_INLINE V per_u() const { return delta; }
  };
  struct Channel {
    V A;
    static constexpr bool exact = false;
    TUSTIN_INLINE Channel(V a, V) : A(a) {}
  };
  static TUSTIN_INLINE AdjointStep<Real> through(const Token& t, const Channel& c, const Sums<Real>& sums, V before,
                                                 V d_z, V d_product) {
    return {before, fma(d_z, c.A, sums.along), d_product, fma(d_z, t.delta, sums.A), d_product};
  }
};

template <class Real>
struct mamba : Plain<Real> {
  using V = Vec<Real>;
  using typename Plain<Real>::Token;
  static constexpr bool kHasFast = true;
  struct Channel : Plain<Real>::Channel {
    V scaled;
    TUSTIN_INLINE Channel(V A, V inverse_A) : Plain<Real>::Channel(A, inverse_A), scaled(A * Real(kStepsPerNaperian)) {}
  };
  template <bool fast>
  static TUSTIN_INLINE V expm1(const Token& t, const Channel& c) {
    const V z = t.delta * c.A;
    if constexpr (!kHasQuickExpm1<Real>)
      return Exponential<Real, fast>(z).minus_one();
    else if constexpr (fast)
      return quick_expm1(t.delta, c.scaled);
    else  // the same bits wherever both are right
      return select(magnitude(z) < kBound<Real>, quick_expm1(t.delta, c.scaled), Exponential<Real>(z).minus_one());
  }
  template <bool fast, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    kept = expm1<fast>(t, c);
    return fma(h, kept, fma(t.input, B, h));
  }
  template <bool, class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V h, V, V kept, Entry, V d,
                                                 const Sums<Real>& sums) {
    return Plain<Real>::through(t, c, sums, fma(d, kept, d), d * fma(h, kept, h), d);
  }
};

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
  static constexpr bool kHasFast = true;
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

// small: the |A| below which the steps up the ladder that a rule needs would cost it more than two digits.
struct ZeroOrder {
  static constexpr double p[] = {1, 0, 0, 0}, small = 1e-6;
};
struct FirstOrder {
  static constexpr double p[] = {0, 1, 0, 0}, small = 0.02;
};
struct Polynomial {
  static constexpr double p[] = {1, 1. / 2, 0, 0}, small = 0.02;
};
struct HigherOrder2 {
  static constexpr double p[] = {1, 1, 1. / 2, 0}, small = 0.25;
};
struct HigherOrder3 {
  static constexpr double p[] = {1, 1, 1. / 2, 1. / 6}, small = 0.25;
};
template <class Real>
using zoh = Hold<Real, ZeroOrder>;
template <class Real>
using foh = Hold<Real, FirstOrder>;
template <class Real>
using pol = Hold<Real, Polynomial>;
template <class Real>
using hoh = Hold<Real, HigherOrder2>;
template <class Real>
using hoh3 = Hold<Real, HigherOrder3>;

// With ρ = 1/(1 − z/2):  α = 1 + zρ,  β = Δρ.
template <class Real>
struct bil : Plain<Real> {
  using V = Vec<Real>;
  using typename Plain<Real>::Token, typename Plain<Real>::Channel;
  static TUSTIN_INLINE V rho(V z) { return 1 / fnma(z, Real(0.5), 1); }
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    kept = rho(z);
    return fma(kept, fma(z, h, t.input * B), h);
  }
  // The rule is the trapezoidal one: z acts on the mean of the states before and after.
  template <bool, class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V h, V after, V kept, Entry,
                                                 V d_after, const Sums<Real>& sums) {
    const V d = d_after * kept;
    return Plain<Real>::through(t, c, sums, fma(d, t.delta * c.A, d_after), d * ((h + after) * Real(0.5)), d);
  }
};

// With b(z) = 1 + z/2 + z²/6 + z³/24:  α = 1 + z·b,  β = Δ·b.
template <class Real>
struct rk4_raw : Plain<Real> {
  using V = Vec<Real>;
  using typename Plain<Real>::Token, typename Plain<Real>::Channel;
  static TUSTIN_INLINE V b(V z) { return fma(z, fma(z, fma(z, Real(1. / 24), Real(1. / 6)), Real(1. / 2)), 1); }
  static TUSTIN_INLINE V b_z(V z) { return fma(z, fma(z, Real(1. / 8), Real(1. / 3)), Real(1. / 2)); }
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    kept = b(z);
    return fma(kept, fma(z, h, t.input * B), h);
  }
  template <bool, class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V h, V, V kept, Entry B, V d_after,
                                                 const Sums<Real>& sums) {
    const V z = t.delta * c.A, d = d_after * kept, d_z = fma(d, h, d_after * b_z(z) * fma(z, h, t.input * B));
    return Plain<Real>::through(t, c, sums, fma(d, z, d_after), d_z, d);
  }
};

// Beyond z* the step is limited to z*/A: it no longer depends on Δ, and on A only through the input's share.
template <class Real>
struct rk4 : Plain<Real> {
  using V = Vec<Real>;
  using Raw = rk4_raw<Real>;
  static constexpr Real kStar = -1.5960716379833216;
  struct Token {
    V delta, input, full;  // Δ, u and Δ·u
    TUSTIN_INLINE Token(V d, V u) : delta(d), input(u), full(d * u) {}
    template <bool>
    TUSTIN_INLINE V per_delta() const {
      return input;
    }
    TUSTIN_INLINE V per_u() const { return splat(Real(1)); }
  };
  struct Channel : Plain<Real>::Channel {
    V longest, longest_A;  // z*/A, the longest step, and its derivative
    TUSTIN_INLINE Channel(V A, V i) : Plain<Real>::Channel(A, i), longest(kStar * i), longest_A(-kStar * i * i) {}
  };
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    const auto beyond = z < kStar;
    const V limited = select(beyond, splat(kStar), z), input = select(beyond, c.longest * t.input, t.full);
    kept = Raw::b(limited);
    return fma(kept, fma(limited, h, input * B), h);
  }
  template <bool, class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V h, V, V kept, Entry B, V d_after,
                                                 const Sums<Real>& sums) {
    const V z = t.delta * c.A, d = d_after * kept;
    const V d_z = fma(d, h, d_after * Raw::b_z(z) * fma(z, h, t.full * B));
    const auto beyond = z < kStar;
    const V rate = select(beyond, V{}, d_z), push = select(beyond, V{}, d);
    return {fma(d, select(beyond, splat(kStar), z), d_after), fma(rate, c.A, sums.along), push,
            sums.A + select(beyond, d * (t.input * B) * c.longest_A, d_z * t.delta),
            d * select(beyond, c.longest, t.delta)};
  }
};

#ifndef TUSTIN_SCHEDULED  // those that scheduled.cpp compiles
#define TUSTIN_SCHEDULED(X) X(zoh) X(foh) X(pol) X(hoh) X(hoh3) X(bil) X(rk4_raw)
#endif

}  // namespace TUSTIN_LEVEL
