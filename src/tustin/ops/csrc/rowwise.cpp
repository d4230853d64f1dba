// The gate, the norm, and their gradients. Compiled once per CPU level.
//
// The gate knows no rows: it takes its numbers a piece at a time. The norm takes spans of rows. Both are cut by the shapes
// alone, and every number goes through the same operations wherever it lies. The gradient of the norm's weight is a sum
// over rows: one partial sum per span, added in a fixed order.
#include "rowwise.h"

#include "phi.hpp"
#include "task.hpp"

namespace TUSTIN_LEVEL {
namespace {

constexpr int kPiece = 1024;                // numbers: whole vectors
constexpr int64_t kSpan = 32;               // rows
constexpr int64_t kWorthThreads = 1 << 15;  // numbers: fewer are done before a second thread wakes up

// A contiguous tensor, of which runs of neighbours are wanted as whole vectors, zero beyond the last number. Where a run is
// that already it is used in place, otherwise it goes through a tile.
template <class Real>
struct Numbers {
  static constexpr int W = kLanes<Real>, R = kRegisterLanes<Real>;
  TustinTensor t;

  Numbers(void* data, int32_t dtype) : t{data, dtype, {}} {}
  bool in_place(int64_t count) const { return t.dtype == kDtype<Real> && count % W == 0; }

  const Real* read(int64_t first, int64_t count, Real* tile) const {
    if (in_place(count)) return (const Real*)t.data + first;
    const int64_t whole = count / R * R;
    load_tile<Real>(t, first, 1, R, R, int(whole / R), tile, R);
    for (int64_t i = whole; i < padded(count); ++i) tile[i] = 0;
    if (whole < count) load_tile<Real>(t, first + whole, 1, 0, int(count - whole), 1, tile + whole, R);
    return tile;
  }
  // Where to write such a run, and what brings it to its place if that is a tile.
  Real* target(int64_t first, int64_t count, Real* tile) const {
    return in_place(count) ? (Real*)t.data + first : tile;
  }
  void write(int64_t first, int64_t count, const Real* tile) const {
    if (in_place(count)) return;
    const int64_t whole = count / R * R;
    store_tile<Real>(t, first, 1, R, R, int(whole / R), tile, R);
    if (whole < count) store_tile<Real>(t, first + whole, 1, 0, int(count - whole), 1, tile + whole, R);
  }
  static int64_t padded(int64_t count) { return (count + W - 1) / W * W; }
};

// ── the gate ─────────────────────────────────────────────────────────────────────────────────────────────────────────

template <class Real, bool gradient>
int gate(const TustinGate& g) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  static_assert(kPiece % W == 0);
  const Numbers<Real> a(g.a, g.dtype), b(g.b, g.dtype), gate(g.gate, g.dtype), out(g.out, g.dtype);
  const Numbers<Real> d_out(g.d_out, g.dtype), d_sum(g.d_sum, g.dtype), d_gate(g.d_gate, g.dtype);
  const int64_t pieces = (g.count + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(dynamic, 8) num_threads(g.threads) if (g.threads > 1 && g.count >= kWorthThreads)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    alignas(64) Real tiles[6][kPiece];
    const int64_t first = piece * kPiece, count = g.count - first < kPiece ? g.count - first : kPiece;
    const Real *a_i = a.read(first, count, tiles[0]), *b_i = b.read(first, count, tiles[1]);
    const Real* gate_i = gate.read(first, count, tiles[2]);
    if constexpr (gradient) {
      const Real* d_out_i = d_out.read(first, count, tiles[3]);
      Real *d_sum_i = d_sum.target(first, count, tiles[4]), *d_gate_i = d_gate.target(first, count, tiles[5]);
      for (int64_t i = 0; i < count; i += W) {
        const V x = load(gate_i + i), s = sigmoid(x), d = load(d_out_i + i) * (s * Real(0.5));
        store(d_sum_i + i, d * x);
        store(d_gate_i + i, d * (load(a_i + i) + load(b_i + i)) * fma(x, 1 - s, 1));
      }
      d_sum.write(first, count, d_sum_i), d_gate.write(first, count, d_gate_i);
    } else {
      Real* out_i = out.target(first, count, tiles[3]);
      for (int64_t i = 0; i < count; i += W) {
        const V x = load(gate_i + i);
        store(out_i + i, (load(a_i + i) + load(b_i + i)) * (x * (sigmoid(x) * Real(0.5))));
      }
      out.write(first, count, out_i);
    }
  }
  return 0;
}

// ── the norm ─────────────────────────────────────────────────────────────────────────────────────────────────────────

template <class Real>
struct NormTask {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;

  const TustinNorm& a;
  const int64_t D, pitch;  // pitch: D rounded up to whole vectors
  const Numbers<Real> x, out, d_out, d_x;
  const Real* weight;  // [pitch]
  Real* tiles[3];      // [pitch]

  NormTask(const TustinNorm& a, const Real* weight, Arena& arena)
      : a(a),
        D(a.D),
        pitch(Numbers<Real>::padded(a.D)),
        x(a.x, a.dtype_x),
        out(a.out, a.dtype_weight),
        d_out(a.d_out, a.dtype_weight),
        d_x(a.d_x, a.dtype_x),
        weight(weight) {
    arena.reset();
    for (Real*& tile : tiles) tile = arena.take<Real>(pitch);
  }
  static size_t arena_bytes(const TustinNorm& a) { return 3 * (Numbers<Real>::padded(a.D) * sizeof(Real) + 64); }

  Real inverse_size(V squares) const {
    const Real mean = sum(squares) / Real(D) + Real(a.eps);
    return 1 / (sizeof(Real) == 8 ? Real(__builtin_sqrt(mean)) : Real(__builtin_sqrtf(float(mean))));
  }

  void forward(int64_t row) const {
    const Real* x_row = x.read(row * D, D, tiles[0]);
    Real* out_row = out.target(row * D, D, tiles[1]);
    V squares{};
    for (int64_t d = 0; d < D; d += W) {
      const V v = load(x_row + d);
      squares = fma(v, v, squares);
    }
    const Real r = inverse_size(squares);
    for (int64_t d = 0; d < D; d += W) store(out_row + d, load(x_row + d) * r * load(weight + d));
    out.write(row * D, D, out_row);
  }

  // With r = 1/√(mean(x²) + eps) and g = d_out·weight: d_x = r·(g − x·r²·mean(g·x)), d_weight = Σ d_out·x·r.
  void backward(int64_t row, Real* d_weight) const {
    const Real *x_row = x.read(row * D, D, tiles[0]), *d_out_row = d_out.read(row * D, D, tiles[1]);
    Real* d_x_row = d_x.target(row * D, D, tiles[2]);
    V squares{}, products{};
    for (int64_t d = 0; d < D; d += W) {
      const V v = load(x_row + d);
      squares = fma(v, v, squares);
      products = fma(load(d_out_row + d) * load(weight + d), v, products);
    }
    const Real r = inverse_size(squares), shrink = r * (r * (sum(products) / Real(D)));
    for (int64_t d = 0; d < D; d += W) {
      const V v = load(x_row + d), g = load(d_out_row + d);
      store(d_x_row + d, r * fms(g, load(weight + d), v * shrink));
      store(d_weight + d, fma(g, v * r, load(d_weight + d)));
    }
    d_x.write(row * D, D, d_x_row);
  }
};

template <class Real>
int norm(const TustinNorm& a, bool gradient) {
  constexpr int W = kLanes<Real>;
  const int64_t spans = (a.rows + kSpan - 1) / kSpan, pitch = Numbers<Real>::padded(a.D);
  const int threads = a.rows * a.D < kWorthThreads ? 1 : a.threads;
  Arena shared((pitch + (gradient ? spans * pitch : 0)) * sizeof(Real) + 2 * 64);
  if (shared.failed()) return 1;
  const Real* weight = Numbers<Real>(a.weight, a.dtype_weight).read(0, a.D, shared.take<Real>(pitch));
  Real* partial = shared.take<Real>(gradient ? spans * pitch : 0);
  const Numbers<Real> d_weight(a.d_weight, a.dtype_weight);
  const int failed = for_each_task(spans, threads, NormTask<Real>::arena_bytes(a), [&](int64_t span, Arena& arena) {
    const NormTask<Real> task(a, weight, arena);
    const int64_t end = (span + 1) * kSpan < a.rows ? (span + 1) * kSpan : a.rows;
    Real* sums = partial + span * pitch;
    for (int64_t d = 0; gradient && d < pitch; d += W) store(sums + d, Vec<Real>{});
    for (int64_t row = span * kSpan; row < end; ++row)
      if (gradient)
        task.backward(row, sums);
      else
        task.forward(row);
  });
  if (failed || !gradient) return failed;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (int64_t d = 0; d < pitch; d += W) {
    Vec<Real> total{};
    for (int64_t span = 0; span < spans; ++span) total += load(partial + span * pitch + d);
    const int64_t count = a.D - d < W ? a.D - d : W;
    Real tile[W];
    store(d_weight.target(d, count, tile), total);
    d_weight.write(d, count, tile);
  }
  return 0;
}

}  // namespace

int run_gate(const TustinGate* g, bool gradient) {
  if (g->dtype == TUSTIN_FLOAT64) return gradient ? gate<double, true>(*g) : gate<double, false>(*g);
  return gradient ? gate<float, true>(*g) : gate<float, false>(*g);
}

int run_norm(const TustinNorm* a, bool gradient) {
  const bool wide = a->dtype_x == TUSTIN_FLOAT64 || a->dtype_weight == TUSTIN_FLOAT64;
  return wide ? norm<double>(*a, gradient) : norm<float>(*a, gradient);
}

}  // namespace TUSTIN_LEVEL
