// Moving pieces of strided tensors of any dtype into small dense tiles of Real, and back.
//
// A tile has one row per token, `pitch` apart; a row holds the W values of neighbouring channels (or states), zero beyond
// the last. `channel` and `token` are the steps in the tensor, in elements; a negative `token` walks time backwards.
#pragma once

#include "scan.h"
#include "vec.hpp"

namespace TUSTIN_LEVEL {

inline float bits_to_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t float_to_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

struct BFloat16 {
  uint16_t bits;
  operator float() const { return bits_to_float(uint32_t(bits) << 16); }
  BFloat16() = default;
  explicit BFloat16(float x) {
    const uint32_t b = float_to_bits(x);
    const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;  // to nearest, ties to even
    bits = uint16_t(x == x ? rounded : 0x7fc0);
  }
};

struct Float16 {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = uint32_t(bits & 0x7fff) << 13;
    const float scaled = bits_to_float(rest) * 5.192296858534828e33f;  // 2¹¹²: also makes subnormals normal
    const uint32_t finite = float_to_bits(scaled), special = rest | 0x7f800000;
    return bits_to_float(sign | ((bits & 0x7c00) == 0x7c00 ? special : finite));
  }
  Float16() = default;
  explicit Float16(float x) {
    const uint32_t b = float_to_bits(x), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
    const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
    const uint32_t subnormal = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000;  // the addition rounds
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    bits = uint16_t(sign | (magnitude >= 0x477ff000 ? special : finite));
  }
};

// W neighbouring elements as a vector, and back.
template <class Element, class Real>
inline Vec<Real> load_row(const Element* p) {
  Real row[kLanes<Real>];
  for (int i = 0; i < kLanes<Real>; ++i) row[i] = Real(p[i]);
  return load(row);
}
template <>
inline Vec<float> load_row<float, float>(const float* p) { return load(p); }
template <>
inline Vec<double> load_row<double, double>(const double* p) { return load(p); }

template <class Element, class Real>
inline void store_row(Element* p, Vec<Real> v) {
  Real row[kLanes<Real>];
  store(row, v);
  for (int i = 0; i < kLanes<Real>; ++i) p[i] = Element(row[i]);
}
template <>
inline void store_row<float, float>(float* p, Vec<float> v) { store(p, v); }
template <>
inline void store_row<double, double>(double* p, Vec<double> v) { store(p, v); }

template <class Element, class Real>
void load_tile(const Element* p, int64_t channel, int64_t token, int channels, int tokens, Real* tile, int pitch) {
  constexpr int W = kLanes<Real>;
  int k = 0;
  if (channels == W && channel == 1) {
    for (; k < tokens; ++k) store(tile + k * pitch, load_row<Element, Real>(p + k * token));
  } else if (channels == W && (token == 1 || token == -1)) {
    for (; k + W <= tokens; k += W) {
      Vec<Real> rows[W];
      const Element* first = token == 1 ? p + k : p - (k + W - 1);
      for (int i = 0; i < W; ++i) rows[i] = load_row<Element, Real>(first + i * channel);
      transpose<Real>(rows);
      for (int j = 0; j < W; ++j) store(tile + (token == 1 ? k + j : k + W - 1 - j) * pitch, rows[j]);
    }
  }
  for (; k < tokens; ++k) {
    for (int i = 0; i < channels; ++i) tile[k * pitch + i] = Real(p[i * channel + k * token]);
    for (int i = channels; i < W; ++i) tile[k * pitch + i] = 0;
  }
}

template <class Element, class Real>
void store_tile(Element* p, int64_t channel, int64_t token, int channels, int tokens, const Real* tile, int pitch) {
  constexpr int W = kLanes<Real>;
  int k = 0;
  if (channels == W && channel == 1) {
    for (; k < tokens; ++k) store_row<Element, Real>(p + k * token, load(tile + k * pitch));
  } else if (channels == W && (token == 1 || token == -1)) {
    for (; k + W <= tokens; k += W) {
      Vec<Real> rows[W];
      Element* first = token == 1 ? p + k : p - (k + W - 1);
      for (int j = 0; j < W; ++j) rows[j] = load(tile + (token == 1 ? k + j : k + W - 1 - j) * pitch);
      transpose<Real>(rows);
      for (int i = 0; i < W; ++i) store_row<Element, Real>(first + i * channel, rows[i]);
    }
  }
  for (; k < tokens; ++k)
    for (int i = 0; i < channels; ++i) p[i * channel + k * token] = Element(tile[k * pitch + i]);
}

template <class Real>
void load_tile(const TustinTensor& t, int64_t offset, int64_t channel, int64_t token, int channels, int tokens,
               Real* tile, int pitch = kLanes<Real>) {
  switch (t.dtype) {
    case TUSTIN_FLOAT32: return load_tile((const float*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_FLOAT64: return load_tile((const double*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_BFLOAT16: return load_tile((const BFloat16*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_FLOAT16: return load_tile((const Float16*)t.data + offset, channel, token, channels, tokens, tile, pitch);
  }
}

template <class Real>
void store_tile(const TustinTensor& t, int64_t offset, int64_t channel, int64_t token, int channels, int tokens,
                const Real* tile, int pitch = kLanes<Real>) {
  switch (t.dtype) {
    case TUSTIN_FLOAT32: return store_tile((float*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_FLOAT64: return store_tile((double*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_BFLOAT16: return store_tile((BFloat16*)t.data + offset, channel, token, channels, tokens, tile, pitch);
    case TUSTIN_FLOAT16: return store_tile((Float16*)t.data + offset, channel, token, channels, tokens, tile, pitch);
  }
}

}  // namespace TUSTIN_LEVEL
