// How the channels are cut into slices, the units of parallel work. It depends on the shapes alone, never on the number of
// threads: the partial sums of the gradients of B and C, one per slice, must not.
#pragma once

#include "scan.h"

namespace {

struct Slices {
  int64_t groups, per_group, channels, group_channels;

  explicit Slices(const TustinScan& a) : Slices(a.D, a.groups_B, a.groups_C) {}
  Slices(int64_t D, int64_t groups_B, int64_t groups_C) {
    groups = least_common_multiple(groups_B ? groups_B : 1, groups_C ? groups_C : 1);
    group_channels = D / groups;
    const int64_t sixteenth = (D + 15) / 16;  // no more partial sums than pay
    channels = ((sixteenth > 32 ? sixteenth : 32) + 15) / 16 * 16;
    per_group = (group_channels + channels - 1) / channels;
  }
  int64_t count() const { return groups * per_group; }
  int64_t first(int64_t slice) const { return slice / per_group * group_channels + slice % per_group * channels; }
  int64_t end(int64_t slice) const {
    const int64_t group_end = (slice / per_group + 1) * group_channels, end = first(slice) + channels;
    return end < group_end ? end : group_end;
  }

 private:
  static int64_t least_common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
      const int64_t rest = x % y;
      x = y, y = rest;
    }
    return a / x * b;
  }
};

}  // namespace
