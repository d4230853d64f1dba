// The short causal convolution for the next tokens of a sequence, and the samples that it keeps. Compiled once per CPU level.
//
// A task is one batch element and a slice of channels. It brings the samples kept and the new ones into one tile, a vector
// of channels at a time, and sums in the order of conv.cpp: the bits are those of the convolution of the whole sequence.
#include "conv.h"

#include "phi.hpp"
#include "task.hpp"

namespace TUSTIN_LEVEL {
namespace {

constexpr int64_t kSlice = 256;             // channels: whole vectors
constexpr int64_t kWorthThreads = 1 << 15;  // elements: fewer are done before a second thread wakes up

template <class Real>
struct Update {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;
  static_assert(kSlice % W == 0);

  const TustinConvUpdate& a;

  int64_t slices() const { return (a.D + kSlice - 1) / kSlice; }
  size_t arena_bytes() const { return (a.S + 2 * a.L + a.K) * W * sizeof(Real) + 3 * 64; }
  static int64_t place(const TustinTensor& t, int64_t batch, int64_t d) {
    return batch * t.stride[0] + d * t.stride[1];
  }

  void run(Arena& arena, int64_t index) const {
    const int64_t batch = index / slices(), first = index % slices() * kSlice;
    const int64_t end = first + kSlice < a.D ? first + kSlice : a.D;
    const int S = int(a.S), L = int(a.L), K = int(a.K);
    arena.reset();
    Real* samples = arena.take<Real>((a.S + a.L) * W);
    Real* weights = arena.take<Real>(a.K * W);
    Real* out = arena.take<Real>(a.L * W);
    alignas(64) Real bias[W] = {};
    for (int64_t d = first; d < end; d += W) {
      const int channels = end - d < W ? int(end - d) : W;
      const auto load_part = [&](const TustinTensor& t, int tokens, Real* to) {
        load_tile<Real>(t, place(t, batch, d), t.stride[1], t.stride[2], channels, tokens, to, W);
      };
      load_part(a.state, S, samples);
      load_part(a.x, L, samples + a.S * W);
      load_tile<Real>(a.weight, d * a.weight.stride[0], a.weight.stride[0], a.weight.stride[1], channels, K, weights, W);
      if (a.bias.data) load_tile<Real>(a.bias, d * a.bias.stride[0], a.bias.stride[0], 0, channels, 1, bias, W);
      for (int k = 0; k < L; ++k) {
        V y = load(bias);
        for (int j = 0; j < K; ++j) y = fma(load(weights + j * W), load(samples + (S + k - K + 1 + j) * W), y);
        store(out + k * W, a.silu ? y * sigmoid(y) : y);
      }
      store_tile<Real>(a.out, place(a.out, batch, d), a.out.stride[1], a.out.stride[2], channels, L, out, W);
      store_tile<Real>(a.state, place(a.state, batch, d), a.state.stride[1], a.state.stride[2], channels, S,
                       samples + a.L * W, W);
    }
  }
};

template <class Real>
int run(const TustinConvUpdate& a) {
  const Update<Real> update{a};
  const int threads = a.batch * a.D * (a.S + a.L) < kWorthThreads ? 1 : a.threads;
  return for_each_task(a.batch * update.slices(), threads, update.arena_bytes(),
                       [&](int64_t i, Arena& arena) { update.run(arena, i); });
}

}  // namespace

int run_conv_update(const TustinConvUpdate* a) { return a->real == TUSTIN_FLOAT64 ? run<double>(*a) : run<float>(*a); }

}  // namespace TUSTIN_LEVEL
