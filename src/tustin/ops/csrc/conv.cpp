// The short causal convolution with its SiLU, and their gradient. Compiled once per CPU level.
//
// The work is cut into tasks: one batch element, a slice of channels and a span of time. A task takes its span a piece
// at a time, and of each piece the channels a vector at a time. A piece stands alone: it reads the K−1 tokens before it
// again, and its gradient computes the K−1 after it again, so nothing is carried from one to the next. Where a row of
// the tensor is a vector as it stands, it is read and written in place, otherwise it goes through tiles.
//
// Walking time backwards is walking forwards with negative strides. The gradients of weight and bias are sums over time
// and batch: one partial sum per span, cut by the shapes alone, added in a fixed order.
#include "conv.h"

#include "phi.hpp"
#include "task.hpp"

namespace TUSTIN_LEVEL {
namespace {

constexpr int64_t kSlice = 64;              // channels: whole vectors
constexpr int kPiece = 64;                  // tokens
constexpr int64_t kSpan = 8 * kPiece;       // tokens
constexpr int64_t kWorthThreads = 1 << 15;  // elements: fewer are done before a second thread wakes up

// The weights of one vector of channels: in registers if their number is known when compiling, else (0) in memory.
template <class Real, int width>
struct Taps {
  static constexpr int K = width;
  Vec<Real> w[width];
  TUSTIN_INLINE Taps(const Real* tile, int64_t) {
    for (int j = 0; j < K; ++j) w[j] = load(tile + j * kLanes<Real>);
  }
  TUSTIN_INLINE Vec<Real> operator[](int j) const { return w[j]; }
};
template <class Real>
struct Taps<Real, 0> {
  const Real* tile;
  const int K;
  TUSTIN_INLINE Taps(const Real* tile, int64_t K) : tile(tile), K(int(K)) {}
  TUSTIN_INLINE Vec<Real> operator[](int j) const { return load(tile + j * kLanes<Real>); }
};

// One task: where its data lie, and the tiles it works on.
template <class Real>
struct ConvTask {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;
  static_assert(kSlice % W == 0);

  const TustinConv& a;
  int64_t batch, span, slice;
  Real* parameters;           // [kSlice / W][K + 1][W]: the weights and the bias
  Real *x, *out, *d_out, *g;  // tiles: [kPiece + 2 (K − 1)][W]

  ConvTask(const TustinConv& a, Arena& arena, int64_t index) : a(a) {
    slice = index % slices(a), index /= slices(a);
    span = index % spans(a), batch = index / spans(a);
    arena.reset();
    parameters = arena.take<Real>(kSlice * (a.K + 1));
    x = arena.take<Real>(tile_size(a)), out = arena.take<Real>(tile_size(a));
    d_out = arena.take<Real>(tile_size(a)), g = arena.take<Real>(tile_size(a));
    for (int64_t d = slice * kSlice; d < end(); d += W) {
      Real* p = parameters_of(d);
      const TustinTensor& w = a.weight;
      load_tile<Real>(w, d * w.stride[0], w.stride[0], w.stride[1], channels(d), int(a.K), p, W);
      if (a.bias.data)
        load_tile<Real>(a.bias, d * a.bias.stride[0], a.bias.stride[0], 0, channels(d), 1, p + a.K * W, W);
      else
        store(p + a.K * W, V{});
    }
  }
  static int64_t slices(const TustinConv& a) { return (a.D + kSlice - 1) / kSlice; }
  static int64_t spans(const TustinConv& a) { return (a.L + kSpan - 1) / kSpan; }
  static int64_t tile_size(const TustinConv& a) { return (kPiece + 2 * (a.K - 1)) * W; }
  static size_t arena_bytes(const TustinConv& a) {
    return (kSlice * (a.K + 1) + 4 * tile_size(a)) * sizeof(Real) + 5 * 64;
  }

  int64_t end() const { return (slice + 1) * kSlice < a.D ? (slice + 1) * kSlice : a.D; }
  int channels(int64_t d) const { return a.D - d < W ? int(a.D - d) : W; }
  Real* parameters_of(int64_t d) const { return parameters + (d - slice * kSlice) * (a.K + 1); }

  // Calls pass(first token, tokens, first channel) for each vector of channels of each piece.
  template <class Pass>
  TUSTIN_INLINE void each(Pass pass) const {
    const int64_t last = (span + 1) * kSpan < a.L ? (span + 1) * kSpan : a.L;
    for (int64_t k = span * kSpan; k < last; k += kPiece)
      for (int64_t d = slice * kSlice; d < end(); d += W) pass(k, last - k < kPiece ? int(last - k) : kPiece, d);
  }

  int64_t offset(const TustinTensor& t, int64_t d, int64_t k) const {
    return batch * t.stride[0] + d * t.stride[1] + (a.reverse ? a.L - 1 - k : k) * t.stride[2];
  }
  int64_t step(const TustinTensor& t) const { return a.reverse ? -t.stride[2] : t.stride[2]; }
  bool in_place(const TustinTensor& t, int64_t d) const {
    return t.dtype == (sizeof(Real) == 8 ? TUSTIN_FLOAT64 : TUSTIN_FLOAT32) && t.stride[1] == 1 && channels(d) == W;
  }

  // The rows of `tokens` tokens from k on; those before the first are zero.
  Rows<Real> read(const TustinTensor& t, int64_t d, int64_t k, int tokens, Real* tile) const {
    if (k >= 0 && in_place(t, d)) return {(Real*)t.data + offset(t, d, k), step(t)};
    const int zeros = k < 0 ? int(-k) : 0;
    for (int i = 0; i < zeros; ++i) store(tile + i * W, V{});
    load_tile<Real>(t, offset(t, d, k + zeros), t.stride[1], step(t), channels(d), tokens - zeros, tile + zeros * W, W);
    return {tile, W};
  }
  // Where to write such rows, and what brings them to their place if that is a tile.
  Rows<Real> target(const TustinTensor& t, int64_t d, int64_t k, Real* tile) const {
    if (in_place(t, d)) return {(Real*)t.data + offset(t, d, k), step(t)};
    return {tile, W};
  }
  void write(const TustinTensor& t, int64_t d, int64_t k, int tokens, const Real* tile) const {
    if (!in_place(t, d)) store_tile<Real>(t, offset(t, d, k), t.stride[1], step(t), channels(d), tokens, tile, W);
  }
};

// bias + Σ_j w_j x_{k+j}, where row 0 of x is the token K−1 before the first.
template <class Real, int width>
TUSTIN_INLINE Vec<Real> convolve(const Taps<Real, width>& taps, Vec<Real> bias, Rows<Real> x, int k) {
  Vec<Real> sum = bias;
  for (int j = 0; j < taps.K; ++j) sum = fma(taps[j], load(x[k + j]), sum);
  return sum;
}

template <class Real, int width, bool silu>
void forward(const ConvTask<Real>& t) {
  using V = Vec<Real>;
  const int64_t K = t.a.K;
  t.each([&](int64_t k0, int tokens, int64_t d) {
    const Rows<Real> x = t.read(t.a.x, d, k0 - (K - 1), tokens + int(K - 1), t.x);
    const Rows<Real> out = t.target(t.a.out, d, k0, t.out);
    const Taps<Real, width> taps(t.parameters_of(d), K);
    const V bias = load(t.parameters_of(d) + K * t.W);
    for (int k = 0; k < tokens; ++k) {
      const V y = convolve(taps, bias, x, k);
      store(out[k], silu ? y * sigmoid(y) : y);
    }
    t.write(t.a.out, d, k0, tokens, t.out);
  });
}

// Adds Σ_k g_k x_{k+j} to the partial sum of each weight, rows of `pitch`, and Σ_k g_k to that of the bias.
template <class Real, int width>
TUSTIN_INLINE void add_sums(int K, Rows<Real> g, Rows<Real> x, int tokens, Real* partial, int64_t pitch) {
  using V = Vec<Real>;
  V d_bias{};
  if constexpr (width > 0) {  // all at once: one alone would wait for its own last addition
    V d_weight[width] = {};
    for (int k = 0; k < tokens; ++k) {
      const V g_k = load(g[k]);
      d_bias += g_k;
      for (int j = 0; j < width; ++j) d_weight[j] = fma(g_k, load(x[k + j]), d_weight[j]);
    }
    for (int j = 0; j < width; ++j) store(partial + j * pitch, load(partial + j * pitch) + d_weight[j]);
  } else {
    for (int k = 0; k < tokens; ++k) d_bias += load(g[k]);
    for (int j = 0; j < K; ++j) {
      V d_weight{};
      for (int k = 0; k < tokens; ++k) d_weight = fma(load(g[k]), load(x[k + j]), d_weight);
      store(partial + j * pitch, load(partial + j * pitch) + d_weight);
    }
  }
  store(partial + K * pitch, load(partial + K * pitch) + d_bias);
}

// With g_k = d_out_k·silu'(y_k): d_x_k = Σ_j w_j g_{k+K−1−j}, d_w_j = Σ_k g_k x_{k−K+1+j}, d_bias = Σ_k g_k.
template <class Real, int width, bool silu>
void backward(const ConvTask<Real>& t, Real* partial, int64_t pitch) {
  using V = Vec<Real>;
  const int K = int(t.a.K);
  const Rows<Real> g{t.g, t.W};
  partial += (t.batch * t.spans(t.a) + t.span) * (K + 1) * pitch;
  for (int64_t d = t.slice * kSlice; d < t.end(); d += t.W)
    for (int j = 0; j <= K; ++j) store(partial + j * pitch + d, V{});
  t.each([&](int64_t k0, int tokens, int64_t d) {
    const int all = tokens + K - 1, present = t.a.L - k0 < all ? int(t.a.L - k0) : all;
    const Rows<Real> x = t.read(t.a.x, d, k0 - (K - 1), present + K - 1, t.x);
    const Rows<Real> d_out = t.read(t.a.d_out, d, k0, present, t.d_out);
    const Rows<Real> d_x = t.target(t.a.d_x, d, k0, t.out);
    const Taps<Real, width> taps(t.parameters_of(d), K);
    const V bias = load(t.parameters_of(d) + K * t.W);
    for (int k = 0; k < present; ++k) {
      V g_k = load(d_out[k]);
      if (silu) {
        const V y = convolve(taps, bias, x, k), s = sigmoid(y);
        g_k *= s * fma(y, 1 - s, 1);
      }
      store(g[k], g_k);
    }
    for (int k = present; k < all; ++k) store(g[k], V{});
    for (int k = 0; k < tokens; ++k) {
      V sum{};
      for (int j = 0; j < taps.K; ++j) sum = fma(taps[j], load(g[k + taps.K - 1 - j]), sum);
      store(d_x[k], sum);
    }
    t.write(t.a.d_x, d, k0, tokens, t.out);
    add_sums<Real, width>(K, g, x, tokens, partial + d, pitch);
  });
}

// The gradients of weight and bias of one vector of channels, from the partial sums of all spans.
template <class Real>
void sum_partials(const TustinConv& a, const Real* partial, int64_t pitch, int64_t d) {
  constexpr int W = kLanes<Real>;
  alignas(64) Real row[W];
  for (int64_t j = 0; j <= a.K; ++j) {
    const TustinTensor& t = j < a.K ? a.d_weight : a.d_bias;
    Vec<Real> sum{};
    for (int64_t i = 0; i < a.batch * ConvTask<Real>::spans(a); ++i)
      sum += load(partial + (i * (a.K + 1) + j) * pitch + d);
    store(row, sum);
    const int64_t offset = d * t.stride[0] + (j < a.K ? j * t.stride[1] : 0);
    store_tile<Real>(t, offset, t.stride[0], 0, a.D - d < W ? int(a.D - d) : W, 1, row, W);
  }
}

template <class Real, int width, bool silu>
int run(const TustinConv& a, bool gradient) {
  constexpr int W = kLanes<Real>;
  const int64_t spans = ConvTask<Real>::spans(a), tasks = a.batch * spans * ConvTask<Real>::slices(a);
  const int64_t pitch = (a.D + W - 1) / W * W, sums = gradient ? a.batch * spans * (a.K + 1) * pitch : 0;
  const int threads = a.batch * a.D * a.L < kWorthThreads ? 1 : a.threads;
  Arena partials(sums * sizeof(Real) + 64);
  if (partials.failed()) return 1;
  Real* partial = partials.take<Real>(sums);
  const int failed = for_each_task(tasks, threads, ConvTask<Real>::arena_bytes(a), [&](int64_t i, Arena& arena) {
    const ConvTask<Real> task(a, arena, i);
    if (gradient)
      backward<Real, width, silu>(task, partial, pitch);
    else
      forward<Real, width, silu>(task);
  });
  if (failed || !gradient) return failed;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (int64_t d = 0; d < pitch; d += W) sum_partials(a, partial, pitch, d);
  return 0;
}

template <class Real>
int run(const TustinConv& a, bool gradient) {
  if (a.K == 4) return a.silu ? run<Real, 4, true>(a, gradient) : run<Real, 4, false>(a, gradient);
  return a.silu ? run<Real, 0, true>(a, gradient) : run<Real, 0, false>(a, gradient);
}

}  // namespace

int run_conv(const TustinConv* a, bool gradient) {
  return a->real == TUSTIN_FLOAT64 ? run<double>(*a, gradient) : run<float>(*a, gradient);
}

}  // namespace TUSTIN_LEVEL
