// One batch element and one slice of channels: where its data lie, and the tiles and states it works on.
#pragma once

#include <new>

#include "discretizations.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "slices.hpp"

namespace TUSTIN_LEVEL {

constexpr int kChunk = TUSTIN_CHUNK;
constexpr int kMaxChannel = 12;  // vectors in the largest Discretization::Channel

// A task: its place in the arguments, and the tiles and states it works on.
template <class Real>
struct Task {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;

  const TustinScan& a;
  const int64_t batch, slice, first, end;
  const int N, pitch, blocks;     // pitch: N rounded up to whole registers and HalfVecs
  Real *constant_B, *constant_C;  // [blocks][N][W]
  Real* past;                     // [blocks][N][W]: for rules of two samples, B·u of the token before the first or the last
  Real *h, *h_before;             // [blocks][N][W]: the states; [N][W]: those of one block before the chunk at hand
  Real* product;                  // [N][W]: B·u of one block, of the token before the one at hand
  void* channels_of_discretization;       // Discretization::Channel[blocks][N]
  Real* reach;                    // [blocks][W]: the largest |A| of a channel; infinite in a block with an exact one
  Rows<Real> B, C;                // of the chunk at hand, where they are not constant
  Rows<Real> u, delta, z, mix, out;  // of the block and chunk at hand; u has a row before the first, if there is one
  bool starts = true, two_samples = false, mixes = false;  // the first chunk; kinds of rules
  Real *slope, *sigmoid, *gate;   // [kChunk][W]: softplus', sigmoid(z), silu(z)
  Real *tile_u, *tile_delta, *tile_z, *tile_mix, *tile_out;  // [kChunk][W]: the rows, where they need room; u has one more

  Task(const TustinScan& a, Arena& arena, int64_t index)
      : a(a),
        batch(index / Slices(a).count()),
        slice(index % Slices(a).count()),
        first(Slices(a).first(slice)),
        end(Slices(a).end(slice)),
        N(int(a.N)),
        pitch(int(rounded_states(a.N))),
        blocks(int((end - first + W - 1) / W)) {
    arena.reset();
    constant_B = arena.take<Real>(a.groups_B ? 0 : states());
    constant_C = arena.take<Real>(a.groups_C ? 0 : states());
    past = arena.take<Real>(states());
    h = arena.take<Real>(states());
    h_before = arena.take<Real>(int64_t(N) * W);
    product = arena.take<Real>(int64_t(N) * W);
    channels_of_discretization = arena.take<Real>(kMaxChannel * states());
    reach = arena.take<Real>(blocks * W);
    Real** const tiles[] = {&slope, &sigmoid, &gate, &tile_u, &tile_delta, &tile_z, &tile_mix, &tile_out};
    for (Real** tile : tiles) *tile = arena.take<Real>((kChunk + 1) * W);

    for (int m = 0; m < blocks; ++m) {
      if (!a.groups_B) load_constant(a.B, m, constant_B);
      if (!a.groups_C) load_constant(a.C, m, constant_C);
    }
  }

  template <class Discretization>
  void prepare_channels() {
    using Channel = typename Discretization::Channel;
    static_assert(sizeof(Channel) <= kMaxChannel * sizeof(V));
    two_samples = Discretization::kTwoSamples, mixes = Discretization::kMixes;
    read_state(a.A, 0, h);  // for a moment
    for (int m = 0; m < blocks; ++m) {
      V largest{};
      for (int n = 0; n < N; ++n) {
        Real* row = at(h, m) + n * W;
        for (int i = channels(m); i < W; ++i) row[i] = -1;
        const V A = load(row), size = magnitude(A);
        const auto* c =
            new ((Channel*)channels_of_discretization + int64_t(m) * N + n) Channel(A, select(size > Real(1e-30), 1 / A, V{}));
        largest = at_least(c->exact ? splat(Real(__builtin_inf())) : size, largest);
      }
      store(reach + m * W, largest);
    }
  }
  void start_states() {
    if (a.initial_state)
      read_state(a.initial_state, batch, h);
    else
      for (int64_t i = 0; i < states(); ++i) h[i] = 0;
    if (two_samples && a.initial_state) read_state(second_part(a.initial_state), batch, past);
  }
  // v⁻ in the state of a rule of two samples.
  void* second_part(void* state) const { return state ? (Real*)state + a.batch * a.D * N : nullptr; }

  static size_t arena_bytes(const TustinScan& a, int64_t extra_states, int64_t extra) {
    const int64_t padded = Slices(a).channels + W;
    const int64_t reals = (6 + kMaxChannel + extra_states) * padded * a.N + padded + 8 * (kChunk + 1) * W + extra;
    return size_t(reals) * sizeof(Real) + 64 * 32;
  }

  static int64_t rounded_states(int64_t N) {
    constexpr int64_t lanes = kRegisterLanes<Real> > kHalfLanes<Real> ? kRegisterLanes<Real> : kHalfLanes<Real>;
    return (N + lanes - 1) / lanes * lanes;
  }
  int64_t states() const { return int64_t(blocks) * N * W; }
  int64_t channel(int block) const { return first + int64_t(block) * W; }
  int channels(int block) const { return end - channel(block) < W ? int(end - channel(block)) : W; }
  Real* at(Real* states, int block) const { return states + int64_t(block) * N * W; }

  // Offset of (batch, channel, token) and step per token, in scan order.
  int64_t offset(const TustinTensor& t, int64_t d, int64_t k) const {
    return batch * t.stride[0] + d * t.stride[1] + (a.reverse ? a.L - 1 - k : k) * t.stride[2];
  }
  int64_t step(int64_t stride) const { return a.reverse ? -stride : stride; }

  // Where the rows lie as they are wanted there is nothing to move.
  bool in_place(const TustinTensor& t, int block) const {
    const bool convertible = sizeof(Real) == 4 && (t.dtype == TUSTIN_BFLOAT16 || t.dtype == TUSTIN_FLOAT16);
    return (t.dtype == kDtype<Real> || convertible) && t.stride[1] == 1 && channels(block) == W;
  }
  Rows<Real> rows(const TustinTensor& t, int block, int64_t k, Real* tile) const {
    if (!in_place(t, block)) return {tile, W};
    const int64_t bytes = t.dtype == kDtype<Real> ? sizeof(Real) : sizeof(BFloat16);
    return {(char*)t.data + offset(t, channel(block), k) * bytes, step(t.stride[2]), t.dtype};
  }
  Rows<Real> load_rows(const TustinTensor& t, int block, int64_t k, int tokens, Real* tile) const {
    if (!in_place(t, block))
      load_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile, W);
    return rows(t, block, k, tile);
  }
  void store_rows(const TustinTensor& t, int block, int64_t k, int tokens, const Real* tile) const {
    if (!in_place(t, block))
      store_tile<Real>(t, offset(t, channel(block), k), t.stride[1], step(t.stride[2]), channels(block), tokens, tile,
                       W);
  }
  void load_constant(const TustinTensor& t, int m, Real* matrix) const {
    load_tile<Real>(t, channel(m) * t.stride[0], t.stride[0], t.stride[1], channels(m), N, at(matrix, m), W);
  }
  // The rows of B and C from token k on, which lie as `in_rows` wants them.
  void find_matrices(int64_t k) {
    starts = k == 0;
    if (a.groups_B) B = matrix_rows(a.B, a.groups_B, k);
    if (a.groups_C) C = matrix_rows(a.C, a.groups_C, k);
  }
  Rows<Real> matrix_rows(const TustinTensor& t, int64_t groups, int64_t k) const {
    const int64_t group = first / (a.D / groups), token = a.reverse ? a.L - 1 - k : k;
    const int64_t offset = batch * t.stride[0] + group * t.stride[1] + token * t.stride[3];
    return {(Real*)t.data + offset, step(t.stride[3])};
  }

  // A vector of a per-channel parameter; zero where it is not given.
  V parameter(const void* p, int block) const {
    return p ? load_channels((const Real*)p + channel(block), block) : V{};
  }
  // One number per channel of a block; zero in the lanes after the last.
  V load_channels(const Real* p, int block) const {
    if (channels(block) == W) return load(p);
    Real v[W] = {};
    for (int i = 0; i < channels(block); ++i) v[i] = p[i];
    return load(v);
  }
  void store_channels(Real* p, int block, V v) const {
    if (channels(block) == W) return store(p, v);
    Real lanes[W];
    store(lanes, v);
    for (int i = 0; i < channels(block); ++i) p[i] = lanes[i];
  }

  // Asks for the rows of the chunk to come: they lie too far apart for the CPU to see them coming.
  void prefetch(const TustinTensor& t, int block, int64_t k) const {
    if (k < 0 || k >= a.L || !in_place(t, block)) return;
    const Rows<Real> later = rows(t, block, k, nullptr);
    const int64_t bytes = later.step * (t.dtype == kDtype<Real> ? sizeof(Real) : sizeof(BFloat16));
    const int tokens = a.L - k < kChunk ? int(a.L - k) : kChunk;
    for (int i = 0; i < tokens; ++i) __builtin_prefetch((char*)later.first + i * bytes);
  }

  // The element-wise functions run in several short passes over the tiles: one long chain of operations per element would
  // leave the CPU waiting for results.
  void load_inputs(int m, int64_t k, int tokens, bool with_slope) {
    if (two_samples && k > 0)
      u = load_rows(a.u, m, k - 1, tokens + 1, tile_u).from(1);
    else
      u = load_rows(a.u, m, k, tokens, tile_u);
    if (mixes) load_mix(m, k, tokens);
    delta = load_rows(a.delta, m, k, tokens, tile_delta);
    if (a.delta_bias) {
      const V bias = parameter(a.delta_bias, m);
      each(tokens, [&](int i) { store(tile_delta + i * W, delta.get(i) + bias); });
      delta = {tile_delta, W};
    }
    if (a.delta_softplus) {
      Real* e = slope;
      each(tokens, [&](int i) { store(e + i * W, exp<Real>(-magnitude(delta.get(i)))); });
      each(tokens, [&](int i) {
        const V x = delta.get(i), e_x = load(e + i * W);
        store(tile_delta + i * W, softplus(x, e_x));
        if (with_slope) store(slope + i * W, softplus_slope(x, e_x));
      });
      delta = {tile_delta, W};
    }
    if (a.z.data) {
      z = load_rows(a.z, m, k, tokens, tile_z);
      each(tokens, [&](int i) { store(sigmoid + i * W, exp<Real>(-z.get(i))); });
      each(tokens, [&](int i) {
        const V s = 1 / (1 + load(sigmoid + i * W));
        store(sigmoid + i * W, s);
        store(gate + i * W, z.get(i) * s);
      });
    }
  }

  // λ; one row serves all tokens where it is constant.
  void load_mix(int m, int64_t k, int tokens) {
    const bool constant = !a.mix.data || (a.mix.stride[1] == 0 && a.mix.stride[2] == 0);
    if (!a.mix.data)
      store(tile_mix, splat(Real(0.5)));
    else
      mix = load_rows(a.mix, m, k, constant ? 1 : tokens, tile_mix);
    if (constant) mix = {tile_mix, 0};
  }

  // What a rule wants to know of token k.
  template <class Discretization>
  TUSTIN_INLINE typename Discretization::Token token(int k, V delta, V u, V before) const {
    if constexpr (Discretization::kMixes)
      return {delta, u, before, mix.get(k)};
    else if constexpr (Discretization::kTwoSamples)
      return {delta, u, before};
    else
      return {delta, u};
  }
  // u⁻ of token k: 1 where v⁻ is known instead, 0 where there is none.
  template <bool first>
  TUSTIN_INLINE V u_before(int k) const {
    return first ? splat(Real(1)) : k || !starts ? u.get(k - 1) : V{};
  }

  template <class Pass>
  static TUSTIN_INLINE void each(int tokens, Pass pass) {
    for (int i = 0; i < tokens; ++i) pass(i);
  }

  // Whether the token before the first one is known by its v⁻.
  bool knows_past() const { return starts && a.initial_state; }
  // Whether with steps up to `longest` every |z| is below the rule's limit, and no channel of the block wants the exact ladder.
  template <class Discretization>
  bool may_be_fast(int m, V longest) const {
    return all(longest * load(reach + m * W) < Discretization::kFast);
  }

  Real* chunk_state(int64_t chunk, int m, int n) const {
    const int64_t chunks = (a.L + kChunk - 1) / kChunk;
    return (Real*)a.chunk_states + ((batch * chunks + chunk) * N + n) * a.D + channel(m);
  }

  // (batch, D, N) in memory, [blocks][N][W] here.
  void read_state(const void* state, int64_t batch, Real* to) const {
    for (int m = 0; m < blocks; ++m) {
      const Real* from = (const Real*)state + (batch * a.D + channel(m)) * N;
      for (int i = 0; i < W; i += kRegisterLanes<Real>)
        load_tile(from + int64_t(i) * N, N, 1, lanes(m, i), N, at(to, m) + i, W);
    }
  }
  void write_state(void* state, Real* from) const {
    for (int m = 0; state && m < blocks; ++m) {
      Real* to = (Real*)state + (batch * a.D + channel(m)) * N;
      for (int i = 0; i < W; i += kRegisterLanes<Real>)
        store_tile(to + int64_t(i) * N, N, 1, lanes(m, i), N, at(from, m) + i, W);
    }
  }
  // How many channels of a block lie in its register that begins at lane i.
  int lanes(int block, int i) const {
    const int left = channels(block) - i;
    return left < 0 ? 0 : left < kRegisterLanes<Real> ? left : kRegisterLanes<Real>;
  }
};

}  // namespace TUSTIN_LEVEL
