// What the inner loops read and write: the rows of tensors, the entries of B and C, the states of a block of channels.
#pragma once

#include "scan.h"
#include "tiles.hpp"

namespace TUSTIN_LEVEL {

template <class Real>
struct Task;

// B or C of one token: one number per state, the same for all channels; or, constant in time, one per state and channel.
template <class Real, bool constant>
struct Entries;
template <class Real>
struct Entries<Real, false> {
  const Real* row;
  TUSTIN_INLINE Real operator[](int n) const { return row[n]; }
};
template <class Real>
struct Entries<Real, true> {
  const Real* row;
  bool per_token;
  TUSTIN_INLINE Vec<Real> operator[](int n) const { return per_token ? splat(row[n]) : load(row + n * kLanes<Real>); }
};

// Rows of a block of channels, one per token: in the tensor itself where that is possible, else in a tile. Those of a
// 16-bit tensor are converted on the way.
template <class Real>
struct Rows {
  void* first;
  int64_t step;
  int dtype = kDtype<Real>;

  TUSTIN_INLINE Real* operator[](int64_t k) const { return (Real*)first + k * step; }
  // From row k on.
  Rows from(int64_t k) const {
    return {(char*)first + k * step * int64_t(dtype == kDtype<Real> ? sizeof(Real) : sizeof(BFloat16)), step, dtype};
  }
  TUSTIN_INLINE Vec<Real> get(int64_t k) const {
    if constexpr (sizeof(Real) == 4) {
      if (__builtin_expect(dtype == TUSTIN_BFLOAT16, 0)) return widened<BFloat16>(k);
      if (__builtin_expect(dtype == TUSTIN_FLOAT16, 0)) return widened<Float16>(k);
    }
    return load((*this)[k]);
  }
  TUSTIN_INLINE void put(int64_t k, Vec<Real> v) const {
    if constexpr (sizeof(Real) == 4) {
      if (__builtin_expect(dtype == TUSTIN_BFLOAT16, 0)) return narrowed<BFloat16>(k, v);
      if (__builtin_expect(dtype == TUSTIN_FLOAT16, 0)) return narrowed<Float16>(k, v);
    }
    store((*this)[k], v);
  }

 private:
  template <class Half>
  TUSTIN_INLINE Vec<Real> widened(int64_t k) const {
    const Half* row = (const Half*)first + k * step;
    Vec<Real> v;
    each_part<Real>([&](auto i) TUSTIN_INLINED {
      part<i.value>(v) = load_row<Half, Real>(row + i.value * kRegisterLanes<Real>);
    });
    return v;
  }
  template <class Half>
  TUSTIN_INLINE void narrowed(int64_t k, Vec<Real> v) const {
    Half* row = (Half*)first + k * step;
    each_part<Real>([&](auto i) TUSTIN_INLINED {
      store_row<Half, Real>(row + i.value * kRegisterLanes<Real>, part<i.value>(v));
    });
  }
};

// The states of one block of channels, with everything the inner loops read at hand.
template <class Real, class Discretization, bool constant>
struct States {
  const typename Discretization::Channel* channel;
  const Real *B, *C;
  const int64_t step_B, step_C;
  const bool starts;

  States(const Task<Real>& t, int m)
      : channel((const typename Discretization::Channel*)t.channels_of_discretization + int64_t(m) * t.N),
        B(t.a.groups_B ? t.B[0] : t.at(t.constant_B, m)),
        C(t.a.groups_C ? t.C[0] : t.at(t.constant_C, m)),
        step_B(t.a.groups_B ? t.B.step : 0),
        step_C(t.a.groups_C ? t.C.step : 0),
        starts(t.starts) {}
  Entries<Real, constant> B_of(int k) const { return entries(B + k * step_B, step_B); }
  // Of the token before. The first has none: there u⁻ is 0, and any B will do; `first` is for where v⁻ is known instead.
  template <bool first>
  auto B_before(const Task<Real>& t, int m, int k) const {
    if constexpr (first)
      return Entries<Real, true>{t.at(t.past, m), false};
    else
      return B_of(k || !starts ? k - 1 : 0);
  }
  Entries<Real, constant> C_of(int k) const { return entries(C + k * step_C, step_C); }

 private:
  static Entries<Real, constant> entries(const Real* row, [[maybe_unused]] int64_t step) {
    if constexpr (constant)
      return {row, step != 0};
    else
      return {row};
  }
};

// What a rule reads of B: the entry of its token, or those of two.
template <class Discretization, class Entry, class Before>
TUSTIN_INLINE auto samples(Entry now, [[maybe_unused]] const Before& before, [[maybe_unused]] int n) {
  if constexpr (Discretization::kTwoSamples)
    return Samples{now, before[n]};
  else
    return now;
}

}  // namespace TUSTIN_LEVEL
