// What a rule is made of. It says
//   Token:   what it wants to know of one token: of its steps Δ and inputs u, a vector of channels each;
//   Channel: what it wants to know of one state of these channels: of A;
//   step:    the state after the token, from the state h before it and B; and what is worth keeping of the work;
//   adjoint: from the gradient of the state after, what all other gradients are made of (docs/math.md derives it), with the
//            help of what step kept.
// `fast` promises that |z| < kFast, so that every e^z is a normal number, and that no Channel is `exact`. It never changes a bit
// of the result.
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
  static constexpr Real kFast = kBound<Real>;
  static constexpr bool kTwoSamples = false, kProducts = false, kMixes = false;  // whether it is one of pairs.hpp, and which
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

}  // namespace TUSTIN_LEVEL
