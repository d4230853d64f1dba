// A linear layer for one token, or a few. Compiled once per CPU level.
//
// It takes as long as its weights take to be read, and memory is fastest where a thread reads on and on: so each goes
// through its share of them one row after the other. A sum depends neither on the threads nor on the other rows.
#include "linear.h"

#include "parallel.hpp"
#include "vec.hpp"

namespace TUSTIN_LEVEL {
namespace {

using V = Vec<float>;
constexpr int W = kLanes<float>;
constexpr int kSums = 4;                    // at once, because each waits for its last addition
constexpr int64_t kWorthThreads = 1 << 15;  // weights: fewer are done before a second thread wakes up

// What is beyond the last whole vector, zero beyond the last number.
TUSTIN_INLINE V load_rest(const float* p, int64_t count) {
  float tile[W] = {};
  for (int64_t i = 0; i < count; ++i) tile[i] = p[i];
  return load(tile);
}

TUSTIN_INLINE float product(const float* a, const float* b, int64_t K) {
  V sums[kSums] = {};
  int64_t k = 0;
  for (; k + kSums * W <= K; k += kSums * W)
    for (int i = 0; i < kSums; ++i) sums[i] = fma(load(a + k + i * W), load(b + k + i * W), sums[i]);
  for (; k + W <= K; k += W) sums[0] = fma(load(a + k), load(b + k), sums[0]);
  if (k < K) sums[0] = fma(load_rest(a + k, K - k), load_rest(b + k, K - k), sums[0]);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace

int run_linear(const TustinLinear* a) {
  const float *x = (const float*)a->x, *weight = (const float*)a->weight, *bias = (const float*)a->bias;
  float* out = (float*)a->out;
  for_each(a->N, a->K * a->N < kWorthThreads ? 1 : a->threads, [&](int64_t n) {
    for (int64_t row = 0; row < a->rows; ++row)  // the weights are still in the cache after the first
      out[row * a->N + n] = product(weight + n * a->K, x + row * a->K, a->K) + (bias ? bias[n] : 0);
  });
  return 0;
}

}  // namespace TUSTIN_LEVEL
