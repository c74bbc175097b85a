// SPDX-License-Identifier: Apache-2.0
// Compiles only if the simulator's own declarations of OpenVINO's C API agree with the headers of an
// installed one.
#include <cstddef>
#include <type_traits>

#include <openvino/c/openvino.h>

#include "model/openvino_api.h"

namespace ours = aclsim::openvino;

// Two types that look the same to the calling convention: equal, pointers to such types, integers or enums of
// one size, or the structs that are declared twice.
template <class A, class B>
constexpr bool same_value() {
    if constexpr (std::is_same_v<A, B>) {
        return true;
    } else if constexpr ((std::is_integral_v<A> || std::is_enum_v<A>) && std::is_enum_v<B>) {
        return sizeof(A) == sizeof(B);
    } else {
        return false;
    }
}

template <class A, class B>
struct Same : std::bool_constant<same_value<A, B>()> {};
template <>
struct Same<ours::Version, ov_version_t> : std::true_type {};
template <>
struct Same<ours::Shape, ov_shape_t> : std::true_type {};
template <>
struct Same<ours::Dimension, ov_dimension_t> : std::true_type {};
template <>
struct Same<ours::PartialShape, ov_partial_shape_t> : std::true_type {};
template <class A, class B>
struct Same<A *, B *> : Same<A, B> {};
template <class A, class B>
struct Same<const A, const B> : Same<A, B> {};
template <class R, class... A, class S, class... B>
struct Same<R (*)(A...), S (*)(B...)> {
    static constexpr bool compare() {
        if constexpr (sizeof...(A) != sizeof...(B)) {
            return false;
        } else {
            return Same<R, S>::value && (Same<A, B>::value && ...);
        }
    }
    static constexpr bool value = compare();
};
template <class R, class... A, class S, class... B>
struct Same<R (*)(A..., ...), S (*)(B..., ...)> : Same<R (*)(A...), S (*)(B...)> {};

#define ACLSIM_CHECK(result, name, arguments) \
    static_assert(Same<decltype(ours::Functions::name), decltype(&::name)>::value, #name);
ACLSIM_OPENVINO_FUNCTIONS(ACLSIM_CHECK)

// The check itself must be able to say no.
static_assert(!Same<int (*)(const ov_core *, size_t), ov_status_e (*)(const ov_core_t *, int)>::value);
static_assert(!Same<int (*)(ov_model *), ov_status_e (*)(ov_core_t *)>::value);
static_assert(!Same<int (*)(ov_model *), ov_status_e (*)(const ov_model_t *)>::value);

#define SAME_MEMBER(mine, theirs, my_member, their_member)                            \
    static_assert(offsetof(ours::mine, my_member) == offsetof(theirs, their_member)); \
    static_assert(sizeof(ours::mine::my_member) == sizeof(theirs::their_member))
static_assert(sizeof(ours::Version) == sizeof(ov_version_t));
SAME_MEMBER(Version, ov_version_t, build_number, buildNumber);
SAME_MEMBER(Version, ov_version_t, description, description);
static_assert(sizeof(ours::Shape) == sizeof(ov_shape_t));
SAME_MEMBER(Shape, ov_shape_t, rank, rank);
SAME_MEMBER(Shape, ov_shape_t, dims, dims);
static_assert(sizeof(ours::Dimension) == sizeof(ov_dimension_t));
SAME_MEMBER(Dimension, ov_dimension_t, min, min);
SAME_MEMBER(Dimension, ov_dimension_t, max, max);
static_assert(sizeof(ours::PartialShape) == sizeof(ov_partial_shape_t));
SAME_MEMBER(PartialShape, ov_partial_shape_t, rank, rank);
SAME_MEMBER(PartialShape, ov_partial_shape_t, dims, dims);

#define SAME_TYPE(mine, theirs) static_assert(static_cast<int>(ours::mine) == static_cast<int>(theirs))
SAME_TYPE(Dynamic, DYNAMIC);
SAME_TYPE(Boolean, BOOLEAN);
SAME_TYPE(Bf16, BF16);
SAME_TYPE(F16, F16);
SAME_TYPE(F32, F32);
SAME_TYPE(F64, F64);
SAME_TYPE(I8, I8);
SAME_TYPE(I16, I16);
SAME_TYPE(I32, I32);
SAME_TYPE(I64, I64);
SAME_TYPE(U8, U8);
SAME_TYPE(U16, U16);
SAME_TYPE(U32, U32);
SAME_TYPE(U64, U64);
