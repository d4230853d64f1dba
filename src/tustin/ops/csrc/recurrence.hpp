// The recurrence over one chunk of tokens, which the forward and the backward pass share.
#pragma once

#include "task.hpp"

namespace TUSTIN_LEVEL {

// The recurrence over a part of a chunk, and its output y = (C·h + D u)·gate into `out`; without a gate where that is NULL.
// Either the states at `from` are updated in place, or, with `keep`, those after each token and what the rule keeps
// are written for the backward pass, which wants the output only for the gradient of the gate. Returns the longest steps.
// `first`: the token is the first of all, and v⁻ is in `past`.
template <class Real, class Discretization, bool constant, bool fast, bool keep, bool first>
TUSTIN_APART Vec<Real> recur(const Task<Real>& t, int m, int begin, int end, const Real* gate, Real* from, Real* kept) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  const States<Real, Discretization, constant> states(t, m);
  const V skip = t.parameter(t.a.D_skip, m);
  const int N = t.N, next = keep ? N * W : 0;
  const bool output = !keep || t.a.z.data;
  [[maybe_unused]] Real* const product = t.product;
  V longest{}, before{};
  if constexpr (Discretization::kTwoSamples)
    if (begin < end) {
      before = t.template u_before<first>(begin);
      const auto B = states.template B_before<first>(t, m, begin);
      for (int n = 0; Discretization::kProducts && n < N; ++n) store(product + n * W, before * B[n]);
    }
  for (int k = begin; k < end; ++k) {
    const V u_k = t.u.get(k);
    const V delta_k = t.delta.get(k);
    if (fast) longest = at_least(longest, magnitude(delta_k));
    const auto token = t.template token<Discretization>(k, delta_k, u_k, before);
    const auto B = states.B_of(k);
    const auto C = states.C_of(k);
    const auto B_before = states.template B_before<first>(t, m, k);
    const Real* h = from + k * next;
    Real* after = from + (k + 1) * next;
    before = u_k;
    V y{};
    for (int n = 0; n < N; ++n) {
      V note{};
      V state = load(h + n * W);
      if constexpr (Discretization::kProducts) {  // v⁻ from memory: one multiplication less. A register at a time, or it spills
        V now{};
        each_part<Real>([&](auto i) TUSTIN_INLINED {
          const Samples v{u_k * B[n], load(product + n * W)};
          V kept_n{};
          const V next_n = Discretization::template step<fast>(token, states.channel[n], state, v, kept_n);
          part<i.value>(now) = part<i.value>(v.now);
          part<i.value>(note) = part<i.value>(kept_n);
          part<i.value>(state) = part<i.value>(next_n);
        });
        store(product + n * W, now);
      } else {
        const auto b = samples<Discretization>(B[n], B_before, n);
        state = Discretization::template step<fast>(token, states.channel[n], state, b, note);
      }
      store(after + n * W, state);
      if (keep) store(kept + k * next + n * W, note);
      if (output) y = fma(state, C[n], y);
    }
    if (!output) continue;
    if (t.a.D_skip) y = fma(skip, u_k, y);
    if (gate) y *= load(gate + k * W);
    t.out.put(k, y);
  }
  return longest;
}

template <class Real, class Discretization, bool constant, bool fast, bool keep>
TUSTIN_INLINE Vec<Real> walk(const Task<Real>& t, int m, int tokens, const Real* gate, Real* from, Real* kept) {
  if constexpr (Discretization::kTwoSamples)
    if (t.knows_past()) {
      const Vec<Real> one = recur<Real, Discretization, constant, fast, keep, true>(t, m, 0, 1, gate, from, kept);
      return at_least(one, recur<Real, Discretization, constant, fast, keep, false>(t, m, 1, tokens, gate, from, kept));
    }
  return recur<Real, Discretization, constant, fast, keep, false>(t, m, 0, tokens, gate, from, kept);
}

// The whole chunk; returns whether it could be fast. Looking at every step beforehand would mean to wait for all of them
// to arrive, so it is tried, and done again in the few cases where some step was too long.
template <class Discretization, bool constant, bool keep, class Real>
TUSTIN_INLINE bool advance(const Task<Real>& t, int m, int tokens, const Real* gate, Real* from, Real* kept) {
  constexpr int W = kLanes<Real>;
  if (Discretization::kHasFast && !t.a.careful && t.template may_be_fast<Discretization>(m, Vec<Real>{})) {
    for (int n = 0; !keep && n < t.N; ++n) store(t.h_before + n * W, load(from + n * W));
    if (t.template may_be_fast<Discretization>(m, walk<Real, Discretization, constant, true, keep>(t, m, tokens, gate, from, kept))) return true;
    for (int n = 0; !keep && n < t.N; ++n) store(from + n * W, load(t.h_before + n * W));
  }
  walk<Real, Discretization, constant, false, keep>(t, m, tokens, gate, from, kept);
  return false;
}

}  // namespace TUSTIN_LEVEL
