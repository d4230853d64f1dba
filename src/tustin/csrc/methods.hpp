// The discretizations. A method says
//   Token:     what it wants to know of one token: of its steps Δ and inputs u, a vector of channels each;
//   Channel:   what it wants to know of one state of these channels: of A;
//   step:      the state after the token, from the state h before it and B; and what is worth keeping of the work;
//   gradients: what the backward pass needs (docs/math.md derives it), with the help of what step kept;
//   adjoint:   instead, where the step depends on Δ, u and B only through z and the product Δ·u·B: the gradients of the
//              state before, of z and of that product, from the one of the state after. That is less work.
// `fast` promises that every e^z is a normal number and that no Channel is `exact`.
// A method is made known by its name in scan.h; a test compares these names with the Python registry.
#pragma once

#include "phi.hpp"

namespace TUSTIN_LEVEL {

template <class Real>
struct Gradients {
  Vec<Real> alpha;       // α
  Vec<Real> alpha_z;     // dα/dz
  Vec<Real> beta;        // β
  Vec<Real> beta_A;      // dβ/dA at fixed Δ, that is Δ·∂β/∂z
  Vec<Real> beta_delta;  // dβ/dΔ at fixed A, that is ∂β/∂Δ + A·∂β/∂z
};

template <class Real>
struct AdjointStep {
  Vec<Real> before, z, product;
};

// What most methods want to know.
template <class Real>
struct Plain {
  using V = Vec<Real>;
  static constexpr bool kHasFast = false;  // whether `fast` makes a difference
  static constexpr bool kHasAdjoint = true;
  struct Token {
    V delta, input;  // Δ and Δ·u
    TUSTIN_INLINE Token(V d, V u) : delta(d), input(d * u) {}
  };
  struct Channel {
    V A;
    static constexpr bool exact = false;
    TUSTIN_INLINE Channel(V a, V) : A(a) {}
  };
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
    return h * kept + (t.input * B + h);
  }
  template <class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token&, const Channel&, V before, V, V kept, Entry, V d_after) {
    return {d_after * kept + d_after, d_after * (before * kept + before), d_after};
  }
};

// The rules with α = e^z and β = ∫₀^Δ e^{A(Δ−τ)} P(τ) dτ, where P(τ) = Σ_j p_j τ^{j−1}/(j−1)!. With x_j = Δ^j φ_j(z):
//   β = Σ_j p_j x_j        dx_j/dΔ = x_{j−1}        dx_j/dA = Δ·x_j − j·x_{j+1} = (Δ·x_{j−1} − j·x_j)/A
// Put the ladder x_1 = (e^z − 1)/A, x_2 = (x_1 − Δ)/A, x_3 = (x_2 − Δ²/2)/A, … into β, and it is linear in e^z − 1 and the
// powers of Δ, with weights that depend on A alone: that is how step computes it. Without x_1 that would cancel where z is
// small, and w = e^z − 1 − z takes the place of e^z − 1. A rule is its p.
template <class Real, class Rule>
struct Hold {
  using V = Vec<Real>;
  static constexpr bool kHasFast = true, kHasAdjoint = false;
  static constexpr Real p1 = Rule::p[0], p2 = Rule::p[1], p3 = Rule::p[2], p4 = Rule::p[3];
  static_assert(p1 == 0 || p1 == 1);

  struct Token : Powers<Real> {
    V input;
    TUSTIN_INLINE Token(V delta, V u) : Powers<Real>(delta), input(u) {}
  };
  static constexpr int kPowers = p1 == 0 ? 0 : p4 != 0 ? 3 : p3 != 0 ? 2 : p2 != 0 ? 1 : 0;  // of Δ in β
  struct Channel {
    V A, inverse_A;
    V e;                         // the weight in β of e^z − 1; of w where there is no x_1
    V d[kPowers ? kPowers : 1];  // the weights of −Δ, −Δ²/2 and −Δ³/6
    bool exact;                  // some |A| is too small for the quick ladder
    TUSTIN_INLINE Channel(V A, V i) : A(A), inverse_A(i) {
      const V d3 = i * p4, d2 = i * (p3 + d3), d1 = i * (p2 + d2), all[] = {d1, d2, d3};
      e = i * (p1 + d1);
      for (int j = 0; j < kPowers; ++j) d[j] = all[j];
      Real size[kLanes<Real>];
      store(size, magnitude(A));
      exact = false;
      for (const Real lane : size) exact |= lane < Real(Rule::small);
    }
  };

  template <bool fast, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    if (!fast && c.exact) {
      const auto x = Ladder<Real>::exact(t, c.A, c.inverse_A);
      return h * x.expm1 + (beta(x) * (t.input * B) + h);
    }
    const Exponential<Real, fast> e(t.d1 * c.A);
    const V v = t.input * B;
    if constexpr (p1 == 0) {
      V expm1;
      e.minus_one(expm1, kept);
      return h * expm1 + (kept * (c.e * v) + h);
    }
    kept = e.minus_one_minus_z();
    V rest = h;  // and what hangs on no exponential
    if constexpr (kPowers == 1) rest -= t.d1 * c.d[0] * v;
    if constexpr (kPowers == 2) rest -= (t.d1 * c.d[0] + t.d2 * c.d[1]) * v;
    if constexpr (kPowers == 3) rest -= (t.d1 * c.d[0] + (t.d2 * c.d[1] + t.d3 * c.d[2])) * v;
    return e.minus_one() * (c.e * v + h) + rest;
  }
  template <bool fast>
  static TUSTIN_INLINE Gradients<Real> gradients(const Token& t, const Channel& c, V kept) {
    const auto x =
        !fast && c.exact ? Ladder<Real>::exact(t, c.A, c.inverse_A) : Ladder<Real>::quick(t, kept, c.A, c.inverse_A);
    const V alpha = x.expm1 + 1, b = beta(x), b_delta = sum(alpha, x.x1, x.x2, x.x3, p1, p2, p3, p4);
    V b_A = t.d1 * b - sum(x.x2, x.x3, x.x4, x.x5, p1, 2 * p2, 3 * p3, 4 * p4);
    if (!fast) {  // far out these two nearly cancel, and the other form does not
      const V far = (t.d1 * b_delta - sum(x.x1, x.x2, x.x3, x.x4, p1, 2 * p2, 3 * p3, 4 * p4)) * c.inverse_A;
      b_A = select(t.d1 * c.A < Constants<Real>::kMinExponent, far, b_A);
    }
    return {alpha, x.expm1 + 1, b, b_A, b_delta};
  }
  static TUSTIN_INLINE V beta(const Ladder<Real>& x) { return sum(x.x1, x.x2, x.x3, x.x4, p1, p2, p3, p4); }

 private:
  // Σ_j f_j y_j without the terms that the rule does not have.
  static TUSTIN_INLINE V sum(V y1, V y2, V y3, V y4, Real f1, Real f2, Real f3, Real f4) {
    V total{};
    if constexpr (p1 != 0) total += f1 * y1;
    if constexpr (p2 != 0) total += f2 * y2;
    if constexpr (p3 != 0) total += f3 * y3;
    if constexpr (p4 != 0) total += f4 * y4;
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
  static TUSTIN_INLINE V rho(V z) { return 1 / (1 - z * Real(0.5)); }
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    kept = rho(z);
    return kept * (z * h + t.input * B) + h;
  }
  // The rule is the trapezoidal one: z acts on the mean of the states before and after.
  template <class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V before, V after, V kept, Entry,
                                                 V d_after) {
    const V d = d_after * kept;
    return {d * (t.delta * c.A) + d_after, d * ((before + after) * Real(0.5)), d};
  }
};

// With b(z) = 1 + z/2 + z²/6 + z³/24:  α = 1 + z·b,  β = Δ·b,  dα/dz = dβ/dΔ.
template <class Real>
struct rk4_raw : Plain<Real> {
  using V = Vec<Real>;
  using typename Plain<Real>::Token, typename Plain<Real>::Channel;
  static TUSTIN_INLINE V b(V z) { return 1 + z * (Real(1. / 2) + z * (Real(1. / 6) + z * Real(1. / 24))); }
  static TUSTIN_INLINE V b_z(V z) { return Real(1. / 2) + z * (Real(1. / 3) + z * Real(1. / 8)); }
  static TUSTIN_INLINE V alpha_z(V z) { return 1 + z * (1 + z * (Real(1. / 2) + z * Real(1. / 6))); }
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    kept = b(z);
    return kept * (z * h + t.input * B) + h;
  }
  template <class Entry>
  static TUSTIN_INLINE AdjointStep<Real> adjoint(const Token& t, const Channel& c, V before, V, V kept, Entry B,
                                                 V d_after) {
    const V z = t.delta * c.A, d = d_after * kept;
    return {d * z + d_after, d * before + d_after * b_z(z) * (z * before + t.input * B), d};
  }
  template <bool>
  static TUSTIN_INLINE Gradients<Real> gradients(const Token& t, const Channel& c, V kept) {
    const V z = t.delta * c.A, d = alpha_z(z);
    return {1 + z * kept, d, t.delta * kept, t.delta * t.delta * b_z(z), d};
  }
};

// Beyond z* the step is limited to z*/A: there α is constant, and β = (z*/A)·b(z*) depends on A alone.
template <class Real>
struct rk4 : rk4_raw<Real> {
  using V = Vec<Real>;
  using Raw = rk4_raw<Real>;
  static constexpr bool kHasAdjoint = false;
  static constexpr Real kStar = -1.5960716379833216;
  struct Token : Raw::Token {
    V u;
    TUSTIN_INLINE Token(V d, V u) : Raw::Token(d, u), u(u) {}
  };
  struct Channel : Raw::Channel {
    V longest;  // z*/A, the longest step
    TUSTIN_INLINE Channel(V A, V inverse_A) : Raw::Channel(A, inverse_A), longest(kStar * inverse_A) {}
  };
  template <bool, class Entry>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, Entry B, V& kept) {
    const V z = t.delta * c.A;
    const auto beyond = z < kStar;
    const V limited = select(beyond, splat(kStar), z), input = select(beyond, c.longest * t.u, t.input);
    kept = Raw::b(limited);
    return kept * (limited * h + input * B) + h;
  }
  template <bool fast>
  static TUSTIN_INLINE Gradients<Real> gradients(const Token& t, const Channel& c, V kept) {
    const auto beyond = t.delta * c.A < kStar;
    Gradients<Real> g = Raw::template gradients<fast>(t, c, kept);
    const V beta = c.longest * kept;
    g.alpha = select(beyond, 1 + kStar * kept, g.alpha);
    g.alpha_z = select(beyond, V{}, g.alpha_z);
    g.beta = select(beyond, beta, g.beta);
    g.beta_A = select(beyond, -beta * c.longest * (1 / kStar), g.beta_A);
    g.beta_delta = select(beyond, V{}, g.beta_delta);
    return g;
  }
};

#ifndef TUSTIN_SCHEDULED  // those that scheduled.cpp compiles
#define TUSTIN_SCHEDULED(X) X(zoh) X(foh) X(pol) X(hoh) X(hoh3) X(bil) X(rk4_raw)
#endif

}  // namespace TUSTIN_LEVEL
