// The rules of two samples: they also weigh the input of the token before, v⁻ = B⁻·u⁻.
#pragma once

#include "step.hpp"

namespace TUSTIN_LEVEL {

// B of the token and of the one before it. Where v⁻ itself is known instead, from a state, it is `before` and u⁻ is 1. With
// kProducts `step` reads v and v⁻ themselves.
template <class Now, class Before>
struct Samples {
  Now now;
  Before before;
};
template <class Now, class Before>
Samples(Now, Before) -> Samples<Now, Before>;

// As AdjointStep, but for two samples. `v` is the gradient of v = B·u, which the token after has begun, and `earlier` that
// of v⁻, as far as this token knows. `push` and `pull` are sums over the states for what a rule makes of them in Token.
template <class Real>
struct PairStep {
  Vec<Real> before, along, A, v, earlier, push, pull;
};
template <class Real>
struct PairSums {
  Vec<Real> along, A, v, push, pull;
};

template <class Real>
struct Pair {
  using V = Vec<Real>;
  static constexpr bool kHasFast = false, kTwoSamples = true, kProducts = false, kMixes = false;
  static constexpr Real kFast = kBound<Real>;
};

// With x_j = Δ^j φ_j(z) and the slope m = (v − v⁻)/Δ:  h⁺ = e^z·h + x_1·v⁻ + x_2·m, and
//   dh⁺/dΔ = e^z·(A·h + v⁻) + β⁻·m        dh⁺/dA = Δ·h⁺ − x_2·v⁻ − 2x_3·m
// where β = x_2/Δ and β⁻ = x_1 − β are the weights of v and v⁻.
template <class Real>
struct true_foh : Pair<Real> {
  using V = Vec<Real>;
  static constexpr bool kHasFast = true, kProducts = true;
  static constexpr Real kFast = 16;  // |z| times the rounding error is what step's shorter form costs
  static constexpr Real kSmall = 0.02;                             // as for the holds
  static constexpr Real kLeast = sizeof(Real) == 8 ? 1e-140 : 1e-15;  // the slope over a shorter step is that over this one

  struct Token : Powers<Real> {
    V u, before, inverse, slope, slope_before;  // u, u⁻, 1/Δ, u/Δ, u⁻/Δ
    V short_step;  // ½·kLeast where Δ is shorter: what β⁻ has to be in β⁻·m, which is ½(v − v⁻) at Δ = 0
    TUSTIN_INLINE Token(V delta, V u, V before)
        : Powers<Real>(delta),
          u(u),
          before(before),
          inverse(select(magnitude(delta) > kLeast, 1 / delta, splat(1 / kLeast))),
          slope(u * inverse),
          slope_before(before * inverse),
          short_step(select(magnitude(delta) > kLeast, V{}, splat(kLeast / 2))) {}
    TUSTIN_INLINE V d_delta(V along, V, V) const { return along; }
  };
  struct Channel {
    V A, scaled, inverse_A, square;  // A, A/ln2, 1/A and 1/A²
    bool exact;
    TUSTIN_INLINE Channel(V A, V i)
        : A(A), scaled(A * Real(kPerNaperian)), inverse_A(i), square(i * i), exact(!all(not_small())) {}
    TUSTIN_INLINE auto not_small() const { return magnitude(A) >= splat(kSmall); }
  };

  template <bool fast>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, const Samples<V, V>& v, V& kept) {
    // With g = h + v⁻/A and w = e^z − 1 − z:  h⁺ = h + (w + z)·g + w·m/A²
    const V z = t.d1 * c.A, m = (v.now - v.before) * t.inverse, g = fma(c.inverse_A, v.before, h);
    V expm1;
    Exponential<Real, fast>(z, fma(t.d1, c.scaled, Constants<Real>::kRound)).minus_one(expm1, kept);
    V after = fma(z, g, fma(kept, fma(c.square, m, g), h));
    if constexpr (!fast) after = select(magnitude(z) < kFast, after, fma(expm1, g, fma(kept, c.square * m, h)));
    if (fast || !c.exact) return after;
    const auto x = Ladder<Real>::exact(t, c.A, c.inverse_A);
    return select(c.not_small(), after, fma(h, x.expm1, fma(x.x1, v.before, fma(x.x2, m, h))));
  }

  template <bool fast, class B>
  static TUSTIN_INLINE PairStep<Real> adjoint(const Token& t, const Channel& c, V h, V after, V w, const B& b, V d,
                                              const PairSums<Real>& sums) {
    const V z = t.d1 * c.A, v = t.before * b.before, m = fnma(t.slope_before, b.before, t.slope * b.now);
    V expm1 = select(z < Constants<Real>::kForgotten, splat(Real(-1)), w + z);
    V x1 = expm1 * c.inverse_A, x2 = w * c.square, x3 = (x2 - t.d2) * c.inverse_A;
    if constexpr (!fast)
      if (c.exact) {
        const auto x = Ladder<Real>::exact(t, c.A, c.inverse_A);
        const auto ordinary = c.not_small();
        expm1 = select(ordinary, expm1, x.expm1);
        x1 = select(ordinary, x1, x.x1), x2 = select(ordinary, x2, x.x2), x3 = select(ordinary, x3, x.x3);
      }
    const V beta = x2 * t.inverse, before = fma(d, expm1, d);
    V beta_before = (x1 - beta) + t.short_step, by_A = fms(t.d1, after, fma(x2, v, (x3 + x3) * m));
    if constexpr (!fast) {  // far out both cancel, and these do not
      const auto far = z < Constants<Real>::kMinExponent;
      beta_before = select(far, c.square * t.inverse, beta_before);
      by_A = select(far, c.inverse_A * fms(fms(t.d1, x1, x2 + x2), m, x1 * v), by_A);
    }
    const V earlier = d * beta_before;
    return {before, fma(earlier, m, fma(before, fma(c.A, h, v), sums.along)), fma(d, by_A, sums.A), fma(d, beta, sums.v),
            earlier, sums.push, sums.pull};
  }
};

// With ρ = 1/(1 − z/2):  α = 1 + zρ,  both weights ½Δρ.
template <class Real>
struct true_bil : Pair<Real> {
  using V = Vec<Real>;
  using Channel = typename Plain<Real>::Channel;
  struct Token {
    V delta, u, before, half, input, input_before;  // Δ, u, u⁻, ½Δ, ½Δ·u, ½Δ·u⁻
    TUSTIN_INLINE Token(V d, V u, V before)
        : delta(d), u(u), before(before), half(d * Real(0.5)), input(half * u), input_before(half * before) {}
    TUSTIN_INLINE V d_delta(V along, V push, V pull) const {
      return fma(fma(u, push, before * pull), Real(0.5), along);
    }
  };
  template <bool, class B>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, const B& b, V& kept) {
    const V z = t.delta * c.A;
    kept = 1 / fnma(z, Real(0.5), 1);
    return fma(kept, fma(t.input, b.now, fma(t.input_before, b.before, z * h)), h);
  }
  template <bool, class B>
  static TUSTIN_INLINE PairStep<Real> adjoint(const Token& t, const Channel& c, V h, V after, V kept, const B& b,
                                              V d_after, const PairSums<Real>& sums) {
    const V d = d_after * kept, d_z = d * ((h + after) * Real(0.5)), earlier = d * t.half;
    return {fma(d, t.delta * c.A, d_after), fma(d_z, c.A, sums.along),      fma(d_z, t.delta, sums.A), sums.v + earlier, earlier,
            fma(d, b.now, sums.push),       fma(d, b.before, sums.pull)};
  }
};

// h⁺ = e^z·g + λΔ·v with g = h + (1 − λ)Δ·v⁻. Where λ is 1 that is `mamba`, to the bit.
template <class Real>
struct exptrap : Pair<Real> {
  using V = Vec<Real>;
  using Channel = typename mamba<Real>::Channel;
  static constexpr bool kHasFast = true, kMixes = true;
  struct Token {
    V delta, u, before, mix, rest, weight, weight_before, input, input_before;  // rest: 1 − λ
    TUSTIN_INLINE Token(V d, V u, V before, V mix)
        : delta(d),
          u(u),
          before(before),
          mix(mix),
          rest(1 - mix),
          weight(mix * d),
          weight_before(rest * d),
          input(weight * u),
          input_before(weight_before * before) {}
    TUSTIN_INLINE V d_delta(V along, V push, V pull) const {
      return fma(mix * u, push, fma(rest * before, pull, along));
    }
    TUSTIN_INLINE V d_mix(V push, V pull) const { return delta * fms(u, push, before * pull); }
  };
  template <bool fast, class B>
  static TUSTIN_INLINE V step(const Token& t, const Channel& c, V h, const B& b, V& kept) {
    kept = mamba<Real>::template expm1<fast>(t, c);
    const V g = fma(t.input_before, b.before, h);
    return fma(g, kept, fma(t.input, b.now, g));
  }
  template <bool, class B>
  static TUSTIN_INLINE PairStep<Real> adjoint(const Token& t, const Channel& c, V h, V, V kept, const B& b, V d,
                                              const PairSums<Real>& sums) {
    const V before = fma(d, kept, d), d_z = before * fma(t.input_before, b.before, h);
    return {before,
            fma(d_z, c.A, sums.along),
            fma(d_z, t.delta, sums.A),
            fma(d, t.weight, sums.v),
            before * t.weight_before,
            fma(d, b.now, sums.push),
            fma(before, b.before, sums.pull)};
  }
};

}  // namespace TUSTIN_LEVEL
