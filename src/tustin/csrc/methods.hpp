// The discretizations. A method says, for one token and one state of each channel,
//   step:      the state after the token, from the state before it and the input v = B u;
//   gradients: what the backward pass needs (docs/math.md derives them).
// The names at the end are compared with the Python registry by a test.
#pragma once

#include "phi.hpp"

namespace TUSTIN_LEVEL {

// What a method may know of a channel's state.
template <class Real>
struct Channel {
  Vec<Real> A, inverse_A;  // inverse_A is 0 where |A| is too small to divide by
  bool small;              // some |A| is below the method's kSmall: use the exact ladder
};

template <class Real>
struct Gradients {
  Vec<Real> alpha;       // α
  Vec<Real> alpha_z;     // dα/dz
  Vec<Real> beta;        // β
  Vec<Real> beta_A;      // dβ/dA at fixed Δ, that is Δ·∂β/∂z
  Vec<Real> beta_delta;  // dβ/dΔ at fixed A, that is ∂β/∂Δ + A·∂β/∂z
};

template <class Real>
struct mamba {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0;
  struct Token {
    V delta;
    explicit Token(V d) : delta(d) {}
  };
  static V step(const Token& t, const Channel<Real>& c, V h, V v) {
    return h * Exponential<Real>(t.delta * c.A).minus_one() + (t.delta * v + h);
  }
  static Gradients<Real> gradients(const Token& t, const Channel<Real>& c) {
    const V alpha = Exponential<Real>(t.delta * c.A).minus_one() + 1;
    return {alpha, alpha, t.delta, V{}, splat(Real(1))};
  }
};

// The rules with α = e^z and β = ∫₀^Δ e^{A(Δ−τ)} P(τ) dτ = Σ_j p_j x_j, with P(τ) = Σ_j p_j τ^{j−1}/(j−1)!. For them
//   dβ/dΔ = P(Δ) + A·β        and        dx_j/dA = Δ·x_j − j·x_{j+1}.
template <class Real, class Rule>
struct hold {
  using V = Vec<Real>;
  struct Token : Powers<Real> {
    V P;
    explicit Token(V delta) : Powers<Real>(delta), P(Rule::P(*this)) {}
  };
  static Ladder<Real> ladder(const Token& t, const Channel<Real>& c) {
    if (__builtin_expect(c.small, 0)) return Ladder<Real>::exact(t, c.A, c.inverse_A);
    return Ladder<Real>::fast(t, c.A, c.inverse_A);
  }
  static V step(const Token& t, const Channel<Real>& c, V h, V v) {
    const auto x = ladder(t, c);
    return h * x.expm1 + (Rule::beta(x) * v + h);
  }
  static Gradients<Real> gradients(const Token& t, const Channel<Real>& c) {
    const auto x = ladder(t, c);
    const V alpha = x.expm1 + 1, beta = Rule::beta(x);
    return {alpha, alpha, beta, t.d1 * beta - Rule::beta_up(x), t.P + c.A * beta};
  }
};

template <class Real>
struct zoh : hold<Real, zoh<Real>> {
  using V = Vec<Real>;
  static constexpr Real kSmall = 1e-6;
  static V P(const Powers<Real>&) { return splat(Real(1)); }
  static V beta(const Ladder<Real>& x) { return x.x1; }
  static V beta_up(const Ladder<Real>& x) { return x.x2; }
};

template <class Real>
struct foh : hold<Real, foh<Real>> {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0.02;
  static V P(const Powers<Real>& d) { return d.d1; }
  static V beta(const Ladder<Real>& x) { return x.x2; }
  static V beta_up(const Ladder<Real>& x) { return 2 * x.x3; }
};

template <class Real>
struct pol : hold<Real, pol<Real>> {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0.02;
  static V P(const Powers<Real>& d) { return 1 + d.d1 * Real(0.5); }
  static V beta(const Ladder<Real>& x) { return x.x1 + x.x2 * Real(0.5); }
  static V beta_up(const Ladder<Real>& x) { return x.x2 + x.x3; }
};

template <class Real>
struct hoh : hold<Real, hoh<Real>> {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0.25;
  static V P(const Powers<Real>& d) { return 1 + d.d1 + d.d2 * Real(0.5); }
  static V beta(const Ladder<Real>& x) { return x.x1 + x.x2 + x.x3 * Real(0.5); }
  static V beta_up(const Ladder<Real>& x) { return x.x2 + 2 * x.x3 + x.x4 * Real(1.5); }
};

template <class Real>
struct hoh3 : hold<Real, hoh3<Real>> {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0.25;
  static V P(const Powers<Real>& d) { return 1 + d.d1 + d.d2 * Real(0.5) + d.d3 * Real(1. / 6); }
  static V beta(const Ladder<Real>& x) { return x.x1 + x.x2 + x.x3 * Real(0.5) + x.x4 * Real(1. / 6); }
  static V beta_up(const Ladder<Real>& x) {
    return x.x2 + 2 * x.x3 + x.x4 * Real(1.5) + x.x5 * Real(2. / 3);
  }
};

// With ρ = 1/(1 − z/2):  α = 1 + zρ,  β = Δρ,  dα/dz = ρ².
template <class Real>
struct bil {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0;
  struct Token {
    V delta;
    explicit Token(V d) : delta(d) {}
  };
  static V rho(V z) { return 1 / (1 - z * Real(0.5)); }
  static V step(const Token& t, const Channel<Real>& c, V h, V v) {
    const V z = t.delta * c.A;
    return rho(z) * (z * h + t.delta * v) + h;
  }
  static Gradients<Real> gradients(const Token& t, const Channel<Real>& c) {
    const V z = t.delta * c.A, r = rho(z), r2 = r * r;
    return {1 + z * r, r2, t.delta * r, t.delta * t.delta * r2 * Real(0.5), r2};
  }
};

template <class Real>
struct rk4_raw {
  using V = Vec<Real>;
  static constexpr Real kSmall = 0;
  struct Token {
    V delta;
    explicit Token(V d) : delta(d) {}
  };
  // (α − 1)/z = β/Δ
  static V slope(V z) { return 1 + z * (Real(1. / 2) + z * (Real(1. / 6) + z * Real(1. / 24))); }
  static V slope_z(V z) { return Real(1. / 2) + z * (Real(1. / 3) + z * Real(1. / 8)); }
  static V alpha_z(V z) { return 1 + z * (1 + z * (Real(1. / 2) + z * Real(1. / 6))); }
  static V step(const Token& t, const Channel<Real>& c, V h, V v) {
    const V z = t.delta * c.A;
    return slope(z) * (z * h + t.delta * v) + h;
  }
  static Gradients<Real> gradients(const Token& t, const Channel<Real>& c) {
    const V z = t.delta * c.A, b = slope(z), d = alpha_z(z);
    return {1 + z * b, d, t.delta * b, t.delta * t.delta * slope_z(z), d};
  }
};

// The step is limited to Δ_eff = z*/A beyond z*; there α is constant and β = Δ_eff·slope(z*) depends on A alone.
template <class Real>
struct rk4 : rk4_raw<Real> {
  using V = Vec<Real>;
  using typename rk4_raw<Real>::Token;
  static constexpr Real kStar = -1.5960716379833216;
  static V step(const Token& t, const Channel<Real>& c, V h, V v) {
    const V z = t.delta * c.A;
    const auto beyond = z < kStar;
    const V limited = beyond ? splat(kStar) : z;
    const V delta = beyond ? kStar * c.inverse_A : t.delta;
    return rk4_raw<Real>::slope(limited) * (limited * h + delta * v) + h;
  }
  static Gradients<Real> gradients(const Token& t, const Channel<Real>& c) {
    const V z = t.delta * c.A;
    const auto beyond = z < kStar;
    Gradients<Real> g = rk4_raw<Real>::gradients(t, c);
    const V slope = rk4_raw<Real>::slope(splat(kStar)), beta = kStar * c.inverse_A * slope;
    g.alpha = beyond ? 1 + kStar * slope : g.alpha;
    g.alpha_z = beyond ? V{} : g.alpha_z;
    g.beta = beyond ? beta : g.beta;
    g.beta_A = beyond ? -beta * c.inverse_A : g.beta_A;
    g.beta_delta = beyond ? V{} : g.beta_delta;
    return g;
  }
};

#define TUSTIN_METHODS(X) X(mamba) X(zoh) X(foh) X(bil) X(pol) X(hoh) X(hoh3) X(rk4) X(rk4_raw)

}  // namespace TUSTIN_LEVEL
