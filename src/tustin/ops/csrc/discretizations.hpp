// The discretizations, one struct each; step.hpp says what is in it. A rule is made known by its name in scan.h, and a test
// compares these names with the Python registry.
#pragma once

#include "hold.hpp"

namespace TUSTIN_LEVEL {

template <class Real>
struct mamba : Plain<Real> {
  using V = Vec<Real>;
  using typename Plain<Real>::Token;
  static constexpr bool kHasFast = true;
  struct Channel : Plain<Real>::Channel {
    V scaled;
    TUSTIN_INLINE Channel(V A, V inverse_A) : Plain<Real>::Channel(A, inverse_A), scaled(A * Real(kStepsPerNaperian)) {}
  };
  template <bool fast, class AnyToken>
  static TUSTIN_INLINE V expm1(const AnyToken& t, const Channel& c) {
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
#define TUSTIN_SCHEDULED(X) X(zoh) X(foh) X(pol) X(hoh) X(hoh3) X(bil) X(rk4_raw) X(true_foh) X(true_bil)
#endif

}  // namespace TUSTIN_LEVEL

#include "pairs.hpp"
