// The forward and the backward pass of one task.
#pragma once

#include "recurrence.hpp"

namespace TUSTIN_LEVEL {

template <class Real, class Discretization, bool constant>
void forward(Task<Real>& t) {
  constexpr int W = kLanes<Real>;
  for (int64_t k = 0; k < t.a.L; k += kChunk) {
    const int tokens = t.a.L - k < kChunk ? int(t.a.L - k) : kChunk;
    t.find_matrices(k);
    for (int m = 0; m < t.blocks; ++m) {
      t.prefetch(t.a.u, m, k + kChunk), t.prefetch(t.a.delta, m, k + kChunk);
      t.load_inputs(m, k, tokens, false);
      for (int n = 0; t.a.chunk_states && n < t.N; ++n)
        t.store_channels(t.chunk_state(k / kChunk, m, n), m, load(t.at(t.h, m) + n * W));
      t.out = t.rows(t.a.out, m, k, t.tile_out);
      const Real* gate = t.a.z.data ? t.gate : nullptr;
      advance<Discretization, constant, false>(t, m, tokens, gate, t.at(t.h, m), (Real*)nullptr);
      t.store_rows(t.a.out, m, k, tokens, t.tile_out);
      if constexpr (Discretization::kTwoSamples)
        if (k + tokens == t.a.L) {
          const auto B = States<Real, Discretization, constant>(t, m).B_of(tokens - 1);
          for (int n = 0; n < t.N; ++n) store(t.at(t.past, m) + n * W, t.u.get(tokens - 1) * B[n]);
        }
    }
  }
  t.write_state(t.a.last_state, t.h);
  if (t.two_samples) t.write_state(t.second_part(t.a.last_state), t.past);
}

// What the backward pass needs beside a Task.
template <class Real>
struct Adjoint {
  using V = Vec<Real>;
  static constexpr int W = kLanes<Real>;
  Real *g, *d_past;       // [blocks][N][W]: gradients of the state and, for two samples, of B·u, carried to earlier tokens
  Real *d_A, *d_B, *d_C;  // [blocks][N][W] each; of B and C where they are constant
  Real *d_D, *d_bias;     // [blocks][W]
  Real *states, *kept;    // [kChunk + 1][N][W], [kChunk][N][W]: the recomputed states of one chunk, and Discretization's notes
  Real *tile_B, *tile_C;  // [kChunk][pitch]: sums over the slice's channels
  Real *row_B, *row_C;    // [pitch][W]: one token's summands, state by state
  Real *d_y, *d_u, *d_delta, *d_z, *d_mix;  // [kChunk][W]

  Adjoint(const Task<Real>& t, Arena& arena) {
    const int64_t all = t.states();
    g = zeros(arena, all), d_past = zeros(arena, t.two_samples ? all : 0), d_A = zeros(arena, all), d_B = zeros(arena, all), d_C = zeros(arena, all);
    d_D = zeros(arena, t.blocks * W), d_bias = zeros(arena, t.blocks * W);
    states = arena.take<Real>(int64_t(kChunk + 1) * t.N * W), kept = arena.take<Real>(int64_t(kChunk) * t.N * W);
    tile_B = arena.take<Real>(kChunk * t.pitch), tile_C = arena.take<Real>(kChunk * t.pitch);
    row_B = zeros(arena, t.pitch * W), row_C = zeros(arena, t.pitch * W);
    Real** const tiles[] = {&d_y, &d_u, &d_delta, &d_z, &d_mix};
    for (Real** tile : tiles) *tile = arena.take<Real>(kChunk * W);

    if (t.a.d_last_state) t.read_state(t.a.d_last_state, t.batch, g);
    if (t.a.d_last_state && t.two_samples) t.read_state(t.second_part(t.a.d_last_state), t.batch, d_past);
  }
  static int64_t extra(const TustinScan& a) {
    const int64_t pitch = Task<Real>::rounded_states(a.N);
    return (2 * kChunk + 1) * a.N * W + 2 * kChunk * pitch + 2 * pitch * W + 5 * kChunk * W +
           2 * (Slices(a).channels + W);
  }
  static Real* zeros(Arena& arena, int64_t count) {
    Real* p = arena.take<Real>(count);
    for (int64_t i = 0; i < count; ++i) p[i] = 0;
    return p;
  }
};

// One state's summands of the gradient of B or C, products. Channel by channel if one of the two is constant; else they will
// all be added up, and half of that is done here.
template <bool constant, class Real>
TUSTIN_INLINE void store_summands(Real* row, int n, Vec<Real> a, Vec<Real> b) {
  if constexpr (constant)
    store(row + n * kLanes<Real>, a * b);
  else
    store(row + n * kHalfLanes<Real>, fma(high_half(a), high_half(b), low_half(a) * low_half(b)));
}

// One token, all states: the adjoint recurrence g_k = C_k dy_k + α_{k+1} g_{k+1}, and every gradient that hangs on it.
template <class Real, class Discretization, bool constant, bool fast>
TUSTIN_INLINE void adjoint_token(const Task<Real>& t, const Adjoint<Real>& adj, int m, int k, Vec<Real> d_y,
                                 Vec<Real>& d_u, Vec<Real>& d_delta) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  const typename Discretization::Token token(t.delta.get(k), t.u.get(k));
  const States<Real, Discretization, constant> states(t, m);
  const auto B = states.B_of(k);
  const auto C = states.C_of(k);
  const int N = t.N;
  const Real *before = adj.states + k * N * W, *after = before + N * W, *kept = adj.kept + k * N * W;
  Real *g = t.at(adj.g, m), *d_A = t.at(adj.d_A, m), *row_B = adj.row_B, *row_C = adj.row_C;
  V along{}, push{}, product{};  // the sum along, Σ_n B·d.push, Σ_n B·d.product
  for (int n = 0; n < N; ++n) {
    V product_n;
    // One register of all vectors at a time; the rest of the work is not used, and so not done. All at once are more than a
    // CPU has registers for.
    each_part<Real>([&](auto i) TUSTIN_INLINED {
      constexpr int first = i.value * kRegisterLanes<Real>;
      const typename Discretization::Channel& channel = states.channel[n];
      const V d_h = fma(d_y, C[n], load(g + n * W)), h = load(before + n * W), h_after = load(after + n * W);
      const AdjointStep<Real> d = Discretization::template adjoint<fast>(token, channel, h, h_after, load(kept + n * W), B[n],
                                                                 d_h, Sums<Real>{along, load(d_A + n * W)});
      const V push_all = fma(d.push, B[n], push), product_all = fma(d.product, B[n], product);
      part<i.value>(along) = part<i.value>(d.along);
      part<i.value>(push) = part<i.value>(push_all);
      part<i.value>(product) = part<i.value>(product_all);
      part<i.value>(product_n) = part<i.value>(d.product);
      store_register(g + n * W + first, part<i.value>(d.before));
      store_register(d_A + n * W + first, part<i.value>(d.A));
    });
    store_summands<constant>(row_B, n, product_n, token.input);
    store_summands<constant>(row_C, n, load(after + n * W), d_y);
  }
  d_u = fma(product, token.per_u(), d_u);
  d_delta = fma(push, token.template per_delta<fast>(), along);
}

// The same for a rule of two samples.
template <class Real, class Discretization, bool constant, bool fast, bool first_token>
TUSTIN_INLINE void adjoint_pair(const Task<Real>& t, const Adjoint<Real>& adj, int m, int k, Vec<Real> d_y, Vec<Real>& d_u,
                                Vec<Real>& d_delta) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  const auto token = t.template token<Discretization>(k, t.delta.get(k), t.u.get(k), t.template u_before<first_token>(k));
  const States<Real, Discretization, constant> states(t, m);
  const auto B = states.B_of(k);
  const auto C = states.C_of(k);
  const auto B_before = states.template B_before<first_token>(t, m, k);
  const int N = t.N;
  const Real *before = adj.states + k * N * W, *after = before + N * W, *kept = adj.kept + k * N * W;
  Real *g = t.at(adj.g, m), *d_A = t.at(adj.d_A, m), *d_past = t.at(adj.d_past, m);
  V along{}, push{}, pull{}, product{};  // the sums, and Σ_n B·d_v
  for (int n = 0; n < N; ++n) {
    V d_v;
    each_part<Real>([&](auto i) TUSTIN_INLINED {
      constexpr int first = i.value * kRegisterLanes<Real>;
      const V d_h = fma(d_y, C[n], load(g + n * W)), h = load(before + n * W), h_after = load(after + n * W);
      const PairStep<Real> d = Discretization::template adjoint<fast>(
          token, states.channel[n], h, h_after, load(kept + n * W), samples<Discretization>(B[n], B_before, n), d_h,
          PairSums<Real>{along, load(d_A + n * W), load(d_past + n * W), push, pull});
      const V product_all = fma(d.v, B[n], product);
      part<i.value>(along) = part<i.value>(d.along);
      part<i.value>(push) = part<i.value>(d.push);
      part<i.value>(pull) = part<i.value>(d.pull);
      part<i.value>(product) = part<i.value>(product_all);
      part<i.value>(d_v) = part<i.value>(d.v);
      store_register(g + n * W + first, part<i.value>(d.before));
      store_register(d_A + n * W + first, part<i.value>(d.A));
      store_register(d_past + n * W + first, part<i.value>(d.earlier));
    });
    store_summands<constant>(adj.row_B, n, d_v, token.u);
    store_summands<constant>(adj.row_C, n, load(after + n * W), d_y);
  }
  d_u += product;
  d_delta = token.d_delta(along, push, pull);
  if constexpr (Discretization::kMixes)
    if (t.a.d_mix.data) store(adj.d_mix + k * W, token.d_mix(push, pull));
}

// Adds one token's summands to the gradient of B or C: over the channels where it varies in time, else over time.
template <bool constant, class Real>
TUSTIN_INLINE void add_rows(const Task<Real>& t, const Real* row, int64_t groups, int m, int k, Real* tile,
                            Real* over_time) {
  constexpr int W = kLanes<Real>, lanes = kHalfLanes<Real>;
  if (!constant || groups) {
    for (int n = 0; n < t.pitch; n += lanes) {
      HalfVec<Real> rows[lanes];
      for (int i = 0; i < lanes; ++i) {
        if constexpr (constant)
          rows[i] = low_half(load(row + (n + i) * W)) + high_half(load(row + (n + i) * W));
        else
          rows[i] = load_as<HalfVec<Real>>(row + (n + i) * lanes);
      }
      Real* sum = tile + k * t.pitch + n;
      store(sum, load_as<HalfVec<Real>>(sum) + sum_rows<Real>(rows));
    }
  } else {
    Real* sum = t.at(over_time, m);
    for (int i = 0; i < t.N * W; i += W) store(sum + i, load(sum + i) + load(row + i));
  }
}

// The tokens of one chunk, last to first.
template <class Real, class Discretization, bool constant, bool fast>
TUSTIN_APART void adjoint_chunk(const Task<Real>& t, const Adjoint<Real>& adj, int m, int tokens, const Rows<Real>& d_y,
                                const Rows<Real>& d_u, const Rows<Real>& d_delta) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  const V skip = t.parameter(t.a.D_skip, m);
  V d_D = load(adj.d_D + m * W), d_bias = load(adj.d_bias + m * W);
  for (int k = tokens - 1; k >= 0; --k) {
    const V d_y_k = d_y.get(k);
    V d_u_k = skip * d_y_k, d_delta_k;
    d_D = fma(d_y_k, t.u.get(k), d_D);
    if constexpr (!Discretization::kTwoSamples)
      adjoint_token<Real, Discretization, constant, fast>(t, adj, m, k, d_y_k, d_u_k, d_delta_k);
    else if (k == 0 && t.knows_past())
      adjoint_pair<Real, Discretization, constant, fast, true>(t, adj, m, k, d_y_k, d_u_k, d_delta_k);
    else
      adjoint_pair<Real, Discretization, constant, fast, false>(t, adj, m, k, d_y_k, d_u_k, d_delta_k);
    add_rows<constant>(t, adj.row_B, t.a.groups_B, m, k, adj.tile_B, adj.d_B);
    add_rows<constant>(t, adj.row_C, t.a.groups_C, m, k, adj.tile_C, adj.d_C);
    if (t.a.delta_softplus) d_delta_k *= load(t.slope + k * W);
    d_bias += d_delta_k;
    d_u.put(k, d_u_k);
    d_delta.put(k, d_delta_k);
  }
  store(adj.d_D + m * W, d_D);
  store(adj.d_bias + m * W, d_bias);
}

template <class Real, class Discretization, bool constant>
void backward_block(Task<Real>& t, const Adjoint<Real>& adj, int m, int64_t k0, int tokens) {
  using V = Vec<Real>;
  constexpr int W = kLanes<Real>;
  for (int n = 0; n < t.N; ++n) store(adj.states + n * W, t.load_channels(t.chunk_state(k0 / kChunk, m, n), m));
  t.out = {t.tile_out, W};
  const bool fast = advance<Discretization, constant, true>(t, m, tokens, (const Real*)nullptr, adj.states, adj.kept);

  Rows<Real> d_y = t.load_rows(t.a.d_out, m, k0, tokens, adj.d_y);
  if (t.a.z.data) {  // out = y·z·s with s = sigmoid(z); its derivative by z is y·s·(1 + z(1 − s))
    const Rows<Real> d_z = t.rows(t.a.d_z, m, k0, adj.d_z);
    t.each(tokens, [&](int k) {
      const V d_out = d_y.get(k), z = t.z.get(k), s = load(t.sigmoid + k * W);
      d_z.put(k, d_out * t.out.get(k) * (s * fma(z, 1 - s, 1)));
      store(adj.d_y + k * W, d_out * load(t.gate + k * W));
    });
    t.store_rows(t.a.d_z, m, k0, tokens, adj.d_z);
    d_y = {adj.d_y, W};
  }
  const Rows<Real> d_u = t.rows(t.a.d_u, m, k0, adj.d_u), d_delta = t.rows(t.a.d_delta, m, k0, adj.d_delta);
  if (Discretization::kHasFast && fast)
    adjoint_chunk<Real, Discretization, constant, true>(t, adj, m, tokens, d_y, d_u, d_delta);
  else
    adjoint_chunk<Real, Discretization, constant, false>(t, adj, m, tokens, d_y, d_u, d_delta);
  t.store_rows(t.a.d_u, m, k0, tokens, adj.d_u);
  t.store_rows(t.a.d_delta, m, k0, tokens, adj.d_delta);
  if (t.mixes && t.a.d_mix.data) {
    const Rows<Real> d_mix = t.rows(t.a.d_mix, m, k0, adj.d_mix);
    if (t.in_place(t.a.d_mix, m)) t.each(tokens, [&](int k) { d_mix.put(k, load(adj.d_mix + k * W)); });
    t.store_rows(t.a.d_mix, m, k0, tokens, adj.d_mix);
  }
}

template <class Real>
void write_partial_tile(const Task<Real>& t, const Real* tile, void* partial, int64_t k0, int tokens) {
  Real* p = (Real*)partial + (t.batch * Slices(t.a).count() + t.slice) * t.a.L * t.N;
  constexpr int lanes = kRegisterLanes<Real>;
  for (int n = 0; n < t.N; n += lanes)
    store_tile(p + k0 * t.N + n, 1, t.N, t.N - n < lanes ? t.N - n : lanes, tokens, tile + n, t.pitch);
}

template <class Real, class Discretization, bool constant>
void backward(Task<Real>& t, Arena& arena) {
  constexpr int W = kLanes<Real>;
  const Adjoint<Real> adj(t, arena);
  for (int64_t chunk = (t.a.L - 1) / kChunk; chunk >= 0; --chunk) {
    const int64_t k0 = chunk * kChunk;
    const int tokens = t.a.L - k0 < kChunk ? int(t.a.L - k0) : kChunk;
    t.find_matrices(k0);
    for (int i = 0; i < kChunk * t.pitch; ++i) adj.tile_B[i] = adj.tile_C[i] = 0;
    for (int m = 0; m < t.blocks; ++m) {
      t.prefetch(t.a.u, m, k0 - kChunk), t.prefetch(t.a.delta, m, k0 - kChunk), t.prefetch(t.a.d_out, m, k0 - kChunk);
      for (int n = 0; chunk > 0 && n < t.N; ++n) __builtin_prefetch(t.chunk_state(chunk - 1, m, n));
      t.load_inputs(m, k0, tokens, true);
      backward_block<Real, Discretization, constant>(t, adj, m, k0, tokens);
    }
    if (t.a.groups_B) write_partial_tile(t, adj.tile_B, t.a.partial_B, k0, tokens);
    if (t.a.groups_C) write_partial_tile(t, adj.tile_C, t.a.partial_C, k0, tokens);
  }
  t.write_state(t.a.d_initial_state, adj.g);
  if (t.two_samples) t.write_state(t.second_part(t.a.d_initial_state), adj.d_past);
  t.write_state(t.a.partial_A, adj.d_A);
  if (!t.a.groups_B) t.write_state(t.a.partial_B, adj.d_B);
  if (!t.a.groups_C) t.write_state(t.a.partial_C, adj.d_C);
  for (int m = 0; m < t.blocks; ++m) {
    const int64_t d = t.batch * t.a.D + t.channel(m);
    t.store_channels((Real*)t.a.partial_D + d, m, load(adj.d_D + m * W));
    t.store_channels((Real*)t.a.partial_bias + d, m, load(adj.d_bias + m * W));
  }
}

template <class Real, template <class> class Discretization>
void run_task(const TustinScan& a, Arena& arena, int64_t index, bool gradient) {
  Task<Real> t(a, arena, index);
  t.template prepare_channels<Discretization<Real>>();
  t.start_states();
  const bool constant = !a.groups_B || !a.groups_C;
  if (gradient)
    constant ? backward<Real, Discretization<Real>, true>(t, arena) : backward<Real, Discretization<Real>, false>(t, arena);
  else
    constant ? forward<Real, Discretization<Real>, true>(t) : forward<Real, Discretization<Real>, false>(t);
}

}  // namespace TUSTIN_LEVEL
